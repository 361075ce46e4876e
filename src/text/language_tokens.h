// Tokens that say which language a text is in, or is to be translated to. Source: M2M100Tokenizer, NllbTokenizer,
// MBartTokenizer, MBart50Tokenizer, MarianTokenizer of transformers.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace situ {

class FolderTokenizer;

// The code in a token: "en" in "__en__" and ">>en<<"; "en_XX" and "eng_Latn" are codes themselves. "": it is no such
// token.
std::string language_of(std::string_view token);

// Where a class of tokenizers puts the token of a text's language.
struct LanguageLayout {
  bool before;         // [language] text [eos]; else text [eos, language]
  std::string source;  // where nothing says which: its code
};
// nullopt: the class has none. `legacy_behaviour`: of NLLB.
std::optional<LanguageLayout> language_layout(const std::string& tokenizer_class, bool legacy_behaviour);

// Every code that the tokenizer has a token for. Looks through the vocabulary.
std::map<std::string, int64_t> languages(const FolderTokenizer& tokenizer);

// What a translation adds around the ids of its source, and the first token of its answer.
struct TranslationTokens {
  std::vector<int64_t> prefix, suffix;
  std::optional<int64_t> forced_bos;
};
// nullopt: nobody says otherwise. Errors: an unknown code, with the known ones; texts of this tokenizer do not say
// their language.
Result<TranslationTokens> translation_tokens(const FolderTokenizer& tokenizer, const std::optional<std::string>& source,
                                             const std::optional<std::string>& target);

}  // namespace situ
