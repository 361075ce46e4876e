/* The C border between Situ and the Rust library in rust/ (Hugging Face tokenizers, chat templates and grammars).
 *
 * Texts are UTF-8 with a size and no terminator; invalid UTF-8 is an error. A function that returns int gives 0 for
 * success and 1 for an error, and then writes the reason to `error`. What is written to `out` or `error` belongs to
 * this library until it goes back through situ_text_free_text or situ_text_free_ids; both structs must be zero or
 * freed before they are passed, and a null `error` is allowed. No call prints, exits or unwinds.
 *
 * A tokenizer is read-only after it was made: any number of threads may use it at once. Rendering uses no shared state.
 * A grammar is used by one thread at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct situ_text_tokenizer situ_text_tokenizer;
typedef struct situ_text_grammar situ_text_grammar;

typedef struct {
  char* data; /* null exactly when size is 0 */
  size_t size;
} situ_text_string;

typedef struct {
  uint32_t* data; /* null exactly when size is 0 */
  size_t size;
} situ_text_ids;

/* Asked every few milliseconds, by the thread that waits for a call: true ends the call with the error "interrupted". A
 * null pointer or a null `asked` never does. */
typedef struct situ_text_stop {
  bool (*asked)(const void* context);
  const void* context;
} situ_text_stop;

void situ_text_free_text(situ_text_string* text);
void situ_text_free_ids(situ_text_ids* ids);

/* An error when the text is not UTF-8; `what` names it there. */
int situ_text_check_utf8(const char* text, size_t text_size, const char* what, size_t what_size,
                         situ_text_string* error);

/* In small letters, as str.lower of Python. */
int situ_text_lower(const char* text, size_t text_size, situ_text_string* out, situ_text_string* error);

/* Reads a tokenizer.json. One that could make unbounded text or ids of a short text is refused here or in the call. Its
 * padding and truncation settings are left out of account, as in transformers. Time (12 s of CPU) and memory (208 MiB
 * and 12 bytes a byte of the file; 512 bytes more for a piece of Unigram) are bounded; an allocation that fails is an
 * error, and its thread and what it holds stay. `bert`: null, or for a file whose one normalizer is a BertNormalizer.
 */
/* What a BertNormalizer does, in place of what tokenizer.json says of it: 0 no, 1 yes, -1 as `lower` (accents), as
 * tokenizer.json (han). */
typedef struct situ_text_bert {
  bool lower;
  int accents, han;
} situ_text_bert;
int situ_text_tokenizer_create(const char* path, size_t path_size, const situ_text_bert* bert,
                               const situ_text_stop* stop, situ_text_tokenizer** out, situ_text_string* error);
/* The same, of what a tokenizer.json would hold. */
int situ_text_tokenizer_create_from(const char* json, size_t json_size, const situ_text_stop* stop,
                                    situ_text_tokenizer** out, situ_text_string* error);
void situ_text_tokenizer_free(situ_text_tokenizer* tokenizer);

/* add_special_tokens: whether the file's post-processor adds its tokens (such as bos) around the text's own ids. Time
 * (3 s of CPU and 20 us a byte) and memory are bounded as above, also within one search of a regular expression.
 * mark: a character that is left out of the text once added tokens were looked for; 0: none is.
 * most: where the text has more ids than that, it is enough to give one more; 0: all are given. */
int situ_text_encode(const situ_text_tokenizer* tokenizer, const char* text, size_t text_size, bool add_special_tokens,
                     uint32_t mark, size_t most, const situ_text_stop* stop, situ_text_ids* out,
                     situ_text_string* error);
/* How many of a text's bytes that ids spell one id stands for at most; 0: it is not known. */
size_t situ_text_longest_token(const situ_text_tokenizer* tokenizer);
/* How many bytes of a text ids spell; the others become no ids, or ids of their own. */
size_t situ_text_spelled_bytes(const situ_text_tokenizer* tokenizer, const char* text, size_t text_size);

/* The text with `mark` behind the first character of every special token in it: encoded with this mark they are not
 * looked for, and nothing else changes. A special token of one character stays one. */
int situ_text_break_special(const situ_text_tokenizer* tokenizer, const char* text, size_t text_size, uint32_t mark,
                            situ_text_string* out, situ_text_string* error);

typedef struct {
  const char* data;
  size_t size;
} situ_text_piece;

/* The ids of one text or of a pair, with the file's special tokens, and of which text each id is (token types). More
 * than `most` ids (0: any number) are cut to as many, special ones left alone: of a pair the longer text first, at the
 * end, or (cut_left) at the beginning, as transformers' truncation "longest_first" does. */
int situ_text_encode_texts(const situ_text_tokenizer* tokenizer, const situ_text_piece* texts, size_t count,
                           size_t most, bool cut_left, const situ_text_stop* stop, situ_text_ids* out,
                           situ_text_ids* types, bool* cut, situ_text_string* error);

/* Ids that the vocabulary does not have give no text. Bytes that are no UTF-8 give U+FFFD. */
int situ_text_decode(const situ_text_tokenizer* tokenizer, const uint32_t* ids, size_t count, bool skip_special_tokens,
                     const situ_text_stop* stop, situ_text_string* out, situ_text_string* error);

/* The look-ups return whether there is such a token, and write `out` only then. */
bool situ_text_token_to_id(const situ_text_tokenizer* tokenizer, const char* token, size_t token_size, uint32_t* out);
bool situ_text_id_to_token(const situ_text_tokenizer* tokenizer, uint32_t id, situ_text_string* out);

/* The bytes that a token stands for, which may be no UTF-8; of a special token its text. False: there is no such token,
 * or its text depends on its neighbours. */
bool situ_text_token_bytes(const situ_text_tokenizer* tokenizer, uint32_t id, situ_text_string* out);

/* Whether the file calls this token special. */
bool situ_text_is_special(const situ_text_tokenizer* tokenizer, uint32_t id);

/* Whether decoding with skip_special_tokens leaves this token out: special ones do, but for those that the normalizer
 * changes (normalized: true), as in tokenizers 0.23. */
bool situ_text_is_left_out(const situ_text_tokenizer* tokenizer, uint32_t id);

/* The number of tokens, added ones included. */
size_t situ_text_vocab_size(const situ_text_tokenizer* tokenizer);

/* Renders a Jinja2 chat template as transformers does. `messages`: a JSON array; `variables`: a JSON object with all
 * other names (bos_token, add_generation_prompt, tools, ...), or null. Time, memory and recursion are bounded. */
int situ_text_render_chat(const char* chat_template, size_t chat_template_size, const char* messages,
                          size_t messages_size, const char* variables, size_t variables_size,
                          const situ_text_stop* stop, situ_text_string* out, situ_text_string* error);

/* kind: 0 a JSON schema, 1 a regular expression, 2 a Lark grammar, 3 a Lark grammar with special tokens. vocabulary:
 * the width of the model's logits, at most 2^23. Time, memory and recursion are bounded. The first call for a tokenizer
 * and a width builds what all later ones share. The grammar does not need the tokenizer any more. */
int situ_text_grammar_create(const situ_text_tokenizer* tokenizer, int kind, const char* source, size_t source_size,
                             size_t vocabulary, situ_text_grammar** out, situ_text_string* error);
int situ_text_grammar_fork(const situ_text_grammar* grammar, situ_text_grammar** out, situ_text_string* error);
void situ_text_grammar_free(situ_text_grammar* grammar);

/* Bit (id % 32) of word id / 32: whether id may come next. The words belong to the grammar, until its next call. */
int situ_text_grammar_allowed(situ_text_grammar* grammar, const uint32_t** words, size_t* count,
                              situ_text_string* error);

/* Whether the text so far is a whole match, and whether nothing can follow. */
bool situ_text_grammar_may_end(const situ_text_grammar* grammar);
bool situ_text_grammar_must_end(const situ_text_grammar* grammar);

/* An id that is not allowed is an error, and changes nothing. */
int situ_text_grammar_append(situ_text_grammar* grammar, int64_t id, situ_text_string* error);
int situ_text_grammar_rewind(situ_text_grammar* grammar, size_t tokens, situ_text_string* error);

#ifdef __cplusplus
}
#endif
