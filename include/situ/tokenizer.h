// Conversations and prompts, and texts as token ids.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "situ/status.h"

namespace situ {

struct Dialog;  // src/pipelines/dialogs.h

// A piece of a message or of a prompt: a text, an image, a sound, token ids, or an array for an input of an encoder.
struct Part {
  enum class Kind { kText, kImage, kAudio, kIds, kArray };
  enum class Type { kBool, kUint8, kInt32, kInt64, kFloat16, kFloat32 };
  Kind kind = Kind::kText;
  // kText: UTF-8. kArray: the name of the graph's input; GRAPH.NAME ("vision_encoder.pixel_values") where several
  // graphs have one of this name.
  std::string text = {};
  std::vector<int64_t> ids = {};  // kIds
  std::string path = {};          // kImage, kAudio: a file, in place of `data`
  // kImage, kAudio: the bytes of a file. With a `shape`: pixels [height, width, 3] of kUint8, red first; samples
  // [samples] of kFloat32, mono, 16 kHz. kArray: elements in C order and the machine's byte order; kFloat32 for an
  // input of float16 is rounded to it.
  std::shared_ptr<const void> data = {};
  size_t size = 0;  // bytes of `data`
  std::vector<int64_t> shape = {};
  Type type = Type::kUint8;

  static Part of_text(std::string text);
  static Part of_ids(std::vector<int64_t> ids);
  static Part of_file(Kind kind, std::string path);
  static Part of_bytes(Kind kind, std::vector<uint8_t> bytes);
  // kImage, kAudio or kArray. `data`: held as long as it is needed; borrowed() does not hold it.
  static Part of_array(Kind kind, std::string name, Type type, std::vector<int64_t> shape,
                       std::shared_ptr<const void> data);
  // Memory of the caller, which must stay until the answer has ended.
  static std::shared_ptr<const void> borrowed(const void* data) { return {std::shared_ptr<const void>(), data}; }
};

struct ToolCall {
  std::string id, name;
  std::string arguments_json;  // of an object; templates get that, or the text, as they read it
};

// A turn of a conversation.
struct Message {
  std::string role;         // "system", "user", "assistant", "tool", or another that the chat template knows
  std::vector<Part> parts;  // texts, images, sounds; neighbouring texts are joined by a line's end
  std::vector<ToolCall> tool_calls = {};
  std::string name = {}, tool_call_id = {}, reasoning = {};  // "": there is none
  std::string more_json = {};  // an object of more keys that the chat template gets; those above come first
  // Whether what is spelled like a special token is one. Default: in an assistant's texts, which may have written it;
  // those of others are ordinary text.
  std::optional<bool> parse_special = {};

  static Message of_text(std::string role, std::string text);
};

// How a chat template makes a prompt of messages.
struct ChatOptions {
  // A list of functions that the answer may call: {"type": "function", "function": {"name", "description",
  // "parameters": a JSON schema}}, or what "function" has alone. Where the template does not show them they stand
  // behind the system message (docs/prompts.md). What the arguments of a call must be is the schema.
  std::string tools_json = {};
  std::string tool_choice = {};     // "" or "auto": texts or calls; "required": a call; "none"; or the name of one tool
  bool parallel_tool_calls = true;  // several calls in one answer
  std::string variables_json = {};  // an object of more variables, such as "enable_thinking"
  bool add_generation_prompt = true;
  // The answer goes on with the text of the last message, whose turn is not ended. No generation prompt then.
  bool continue_last = false;
};

// What an image or a sound of a prompt became.
struct MediaFacts {
  Part::Kind kind = Part::Kind::kImage;
  int64_t width = 0, height = 0;  // of an image's file, upright
  double duration_s = 0;          // of a sound
  int64_t tokens = 0;             // of the prompt that stand for rows of the encoder
};

// What an answer goes on from: a conversation, or parts. Model::read() makes it ids and arrays.
struct Prompt {
  Prompt() = default;
  Prompt(std::vector<int64_t> ids) : parts{Part::of_ids(std::move(ids))} {}  // NOLINT: implicit
  explicit Prompt(std::string text) : parts{Part::of_text(std::move(text))} {}
  explicit Prompt(std::vector<Message> conversation) : messages(std::move(conversation)) {}

  // A text, read as the tokenizer does, with special tokens in it and around it; or ids. Each placeholder in the text
  // ("<image>") is an image, in order; without placeholders images and sounds stand where their parts do. In ids their
  // tokens are there already. Of an encoder-decoder: the encoder's where that takes ids, else the decoder's.
  std::vector<Part> parts;
  std::vector<Message> messages;  // in place of parts, but for arrays
  ChatOptions chat;
  std::vector<int64_t> decoder_ids;  // of an encoder-decoder; empty: its start token
  bool parse_special = true;         // of a text in `parts`
  int64_t max_pixels = 64'000'000;   // width times height of an image's file
  // Settings of preprocessor_config.json that hold for these images: "do_image_splitting" -> "false". Values are JSON.
  std::map<std::string, std::string> image_settings;
  // Of a prompt that was read: its images and sounds; that it was a conversation.
  std::vector<MediaFacts> media;
  bool is_conversation = false;
  std::shared_ptr<const Dialog> dialog;  // how calls and reasoning of the answer are read; null: it is text

  // Its token ids; empty: it has none, or was not read.
  const std::vector<int64_t>& ids() const;
};

// Error: the text is not UTF-8. It names `what` and the first byte that is wrong.
Status check_utf8(std::string_view text, std::string_view what);

// Texts of a model folder to token ids and back. A handle: copies share what was loaded, and any thread may use them,
// while others generate too. Errors: kNotFound, where the folder has no tokenizer or no chat template; a text that is
// not UTF-8, or that the tokenizer cannot express.
class Tokenizer {
 public:
  // Ids and texts are those of the Python packages tokenizers and transformers.
  static Result<Tokenizer> load(const std::string& folder);

  bool is_there() const;  // false: there are ids only
  bool has_chat_template() const;
  int64_t size() const;  // tokens, added ones included; a model's logits may be wider

  // `add_special`: BOS, EOS and whatever else the tokenizer puts around a text. `parse_special`: what is spelled like a
  // special token is one.
  Result<std::vector<int64_t>> encode(std::string_view text, bool add_special = true, bool parse_special = true) const;
  Result<std::string> decode(std::span<const int64_t> ids, bool skip_special = true) const;

  std::optional<int64_t> id_of(std::string_view token) const;
  std::optional<std::string> token_of(int64_t id) const;
  // The bytes that a token stands for alone, which may be part of a character; none: that depends on its neighbours.
  std::optional<std::string> bytes_of(int64_t id) const;
  bool is_special(int64_t id) const;
  // Tokens that end an answer: those of the model's files, then the eos_token of tokenizer_config.json.
  const std::vector<int64_t>& end_ids() const;

  // The text that the chat template makes of a conversation, and the ids of it. Tools, calls, their results and
  // reasoning become what the template reads, or text where it reads none. In the text nothing tells a special token
  // from what a user has spelled like one; in the ids they differ. Errors: the template's own; a message with an image
  // or a sound, which Model::read() reads.
  Result<std::string> render(std::span<const Message> messages, const ChatOptions& options = {}) const;
  Result<std::vector<int64_t>> encode(std::span<const Message> messages, const ChatOptions& options = {}) const;

  // The source of a translation, by tokens that name languages (M2M100, NLLB, mBART; Marian's targets), and what
  // GenerateOptions::forced_bos_id is to be. "": the tokenizer's own choice. Errors: a code without a token, with those
  // that there are; a tokenizer without such tokens.
  struct Translation {
    std::vector<int64_t> ids;
    std::optional<int64_t> forced_bos_id;
  };
  Result<Translation> encode_translation(const std::string& text, const std::string& source_language,
                                         const std::string& target_language) const;

  struct Impl;

 private:
  friend struct Internals;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace situ
