#include "speech/speech_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/json_file.h"

namespace situ {
namespace {

using Json = nlohmann::json;

// "en" in "<|en|>", as Whisper's vocabularies spell languages: two or three small letters.
std::string code_in(const std::string& token) {
  if (token.size() < 6 || token.size() > 7 || token.rfind("<|", 0) != 0 || !token.ends_with("|>")) return "";
  const std::string code = token.substr(2, token.size() - 4);
  const bool letters = std::all_of(code.begin(), code.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  return letters ? code : "";
}

class Reader {
 public:
  Reader(const ModelFolder& folder, const FolderTokenizer& tokenizer, int64_t vocabulary)
      : folder_(folder), tokenizer_(tokenizer), vocabulary_(vocabulary) {}

  Result<SpeechTokens> read() {
    const std::filesystem::path file = folder_.folder / "generation_config.json",
                                other = folder_.folder / "config.json";
    SpeechTokens t;
    Json asked = Json::object();
    for (const auto& [path, json] : {std::pair{file, &config_}, {other, &asked}}) {
      std::error_code unknown;
      if (!t.settings.empty() || !std::filesystem::exists(path, unknown)) continue;
      Result<Json> found = read_json_object(path);
      if (!found.is_ok()) return found.status();
      *json = std::move(*found);
      t.settings = path.string();
    }
    SITU_RETURN_IF_ERROR(find("decoder_start_token_id", {"<|startoftranscript|>"}, &t.start));
    SITU_RETURN_IF_ERROR(find("eos_token_id", {"<|endoftext|>"}, &t.end));
    SITU_RETURN_IF_ERROR(find("no_timestamps_token_id", {"<|notimestamps|>"}, &t.no_timestamps));
    SITU_RETURN_IF_ERROR(find("", {"<|nospeech|>", "<|nocaptions|>"}, &t.no_speech));
    t.first_timestamp = t.no_timestamps + 1;
    if (t.first_timestamp >= vocabulary_)
      return refused("<|0.00|> would be token " + std::to_string(t.first_timestamp) + ", outside the vocabulary of " +
                     std::to_string(vocabulary_));
    find_optional(id_in("prev_sot_token_id"), "<|startofprev|>", &t.previous);
    find_optional(id_in("task_to_id", "transcribe"), "<|transcribe|>", &t.transcribe);
    find_optional(id_in("task_to_id", "translate"), "<|translate|>", &t.translate);
    find_languages(t);
    find_suppressed(t);
    read_rest(t);
    SITU_RETURN_IF_ERROR(read_asked(t.settings == other ? asked : config_, t));
    return t;
  }

 private:
  Status refused(const std::string& why) const {
    return Status::error(Code::kUnsupportedModel,
                         folder_.folder.string() + ": not a vocabulary of Whisper's kind: " + why);
  }
  bool inside(int64_t id) const { return id >= 0 && id < vocabulary_; }

  static std::optional<int64_t> integer(const Json& j) {
    return j.is_number_integer() && !(j.is_number_unsigned() && j.get<uint64_t>() > uint64_t{INT64_MAX})
               ? std::optional(j.get<int64_t>())
               : std::nullopt;
  }
  // A field, or one of an object that it is.
  std::optional<int64_t> id_in(const char* field, const char* key = nullptr) const {
    const auto it = config_.find(field);
    if (it == config_.end()) return std::nullopt;
    if (!key) return it->is_array() && it->size() == 1 ? integer((*it)[0]) : integer(*it);
    return it->is_object() && it->contains(key) ? integer((*it)[key]) : std::nullopt;
  }

  Status find(const char* field, std::initializer_list<const char*> names, int64_t* to) const {
    std::optional<int64_t> id = *field ? id_in(field) : std::nullopt;
    for (const char* name : names)
      if (!id) id = tokenizer_.token_to_id(name);
    if (!id && !*field) id = before_no_timestamps();
    if (!id) return refused(std::string("no ") + (*field ? std::string(field) + " and no " : "") + *names.begin());
    if (!inside(*id))
      return refused(std::string(*names.begin()) + " is token " + std::to_string(*id) + ", outside the vocabulary of " +
                     std::to_string(vocabulary_));
    *to = *id;
    return Status::ok();
  }
  // <|nospeech|> stands before <|notimestamps|> in every vocabulary of Whisper, as transformers takes it.
  std::optional<int64_t> before_no_timestamps() const {
    if (const std::optional<int64_t> id = id_in("no_timestamps_token_id")) return *id - 1;
    const std::optional<int64_t> id = tokenizer_.token_to_id("<|notimestamps|>");
    return id ? std::optional(*id - 1) : std::nullopt;
  }
  void find_optional(std::optional<int64_t> id, const char* name, std::optional<int64_t>* to) const {
    if (!id) id = tokenizer_.token_to_id(name);
    if (id && inside(*id)) *to = id;
  }

  void find_languages(SpeechTokens& t) const {
    const auto of_file = config_.find("lang_to_id");
    if (of_file != config_.end() && of_file->is_object()) {
      for (const auto& [token, value] : of_file->items())
        if (const std::optional<int64_t> id = integer(value); id && inside(*id) && !code_in(token).empty())
          t.languages[code_in(token)] = *id;
      return;
    }
    // English-only vocabularies have the tokens too, and models that were never taught them.
    const auto flag = config_.find("is_multilingual");
    const bool multilingual =
        flag != config_.end() && flag->is_boolean() ? flag->get<bool>() : t.first_timestamp > kEnglishTimestamp;
    for (int64_t id = t.start + 1; multilingual && id < t.no_timestamps; ++id)
      if (const std::optional<std::string> token = tokenizer_.id_to_token(id))
        if (const std::string code = code_in(*token); !code.empty()) t.languages[code] = id;
  }

  // The reference's tokens that are no speech, where generation_config.json does not list them: signs that stand alone,
  // and what only a prompt has.
  void find_suppressed(SpeechTokens& t) const {
    const auto ids = [&](const char* field, std::vector<int64_t>* to) {
      const auto it = config_.find(field);
      if (it == config_.end() || !it->is_array()) return it != config_.end();
      for (const Json& j : *it)
        if (const std::optional<int64_t> id = integer(j); id && inside(*id)) to->push_back(*id);
      return true;
    };
    if (!ids("suppress_tokens", &t.suppressed)) {
      for (const char* sign : {"\"", "#",   "(",   ")",  "*",   "+",  "/",  ":",  ";",   "<",  "=",  ">",   "@",   "[",
                               "\\", "]",   "^",   "_",  "`",   "{",  "|",  "}",  "~",   "「", "」", "『",  "』",  "<<",
                               ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", "(\"", "((", "))", "(((", ")))", "[[",
                               "]]", "{{",  "}}",  "♪♪", "♪♪♪", "♩",  "♪",  "♫",  "♬",   "♭",  "♮",  "♯"})
        for (const std::string& text : {std::string(sign), " " + std::string(sign)}) {
          const Result<std::vector<int64_t>> encoded = tokenizer_.encode(text, false);
          const bool music = std::string_view(sign).starts_with("\xe2\x99");
          if (encoded.is_ok() && !encoded->empty() && (encoded->size() == 1 || music))
            t.suppressed.push_back((*encoded)[0]);
        }
      for (const char* dash : {" -", " '"})
        if (const Result<std::vector<int64_t>> encoded = tokenizer_.encode(dash, false);
            encoded.is_ok() && !encoded->empty())
          t.suppressed.push_back((*encoded)[0]);
    }
    if (!ids("begin_suppress_tokens", &t.suppressed_first)) {
      if (const Result<std::vector<int64_t>> blank = tokenizer_.encode(" ", false); blank.is_ok() && blank->size() == 1)
        t.suppressed_first.push_back((*blank)[0]);
      t.suppressed_first.push_back(t.end);
    }
    for (const std::optional<int64_t>& id :
         {std::optional(t.start), t.transcribe, t.translate, t.previous, std::optional(t.no_speech)})
      if (id) t.suppressed.push_back(*id);
    if (const std::optional<int64_t> id = tokenizer_.token_to_id("<|startoflm|>"); id && inside(*id))
      t.suppressed.push_back(*id);
    std::sort(t.suppressed.begin(), t.suppressed.end());
    t.suppressed.erase(std::unique(t.suppressed.begin(), t.suppressed.end()), t.suppressed.end());
  }

  void read_rest(SpeechTokens& t) const {
    if (const std::optional<int64_t> most = id_in("max_initial_timestamp_index"); most && *most >= 0)
      t.max_initial_timestamp = *most;
    const auto heads = config_.find("alignment_heads");
    if (heads == config_.end() || !heads->is_array()) return;
    for (const Json& pair : *heads)
      if (pair.is_array() && pair.size() == 2 && integer(pair[0]) && integer(pair[1]))
        t.alignment_heads.emplace_back(*integer(pair[0]), *integer(pair[1]));
  }

  // `language` and `task`, else what the tokens of `forced_decoder_ids`, pairs of position and id, say of them.
  static Status read_asked(const Json& config, SpeechTokens& t) {
    const auto text = [&](const char* field) {
      const auto it = config.find(field);
      if (it == config.end() || it->is_null()) return std::string();
      return it->is_string() ? it->get<std::string>() : it->dump();
    };
    std::string language, task;  // of the tokens
    const auto forced = config.find("forced_decoder_ids");
    const auto is_pair = [](const Json& pair) {
      return pair.is_array() && pair.size() == 2 && integer(pair[0]) && (pair[1].is_null() || integer(pair[1]));
    };
    if (forced != config.end() && !forced->is_null()) {
      if (!forced->is_array() || !std::all_of(forced->begin(), forced->end(), is_pair))
        return Status::error(Code::kUnsupportedModel,
                             t.settings +
                                 ": forced_decoder_ids is not a list of pairs of a position and a token's id: " +
                                 shortened(forced->dump(-1, ' ', false, Json::error_handler_t::replace)));
      for (const Json& pair : *forced) {
        const std::optional<int64_t> id = integer(pair[1]);
        if (!id) continue;
        for (const auto& [code, token] : t.languages)
          if (token == *id) language = code;
        if (t.transcribe == id) task = "transcribe";
        if (t.translate == id) task = "translate";
      }
    }
    t.asked_language = text("language");
    t.asked_task = text("task");
    if (t.asked_language.empty()) t.asked_language = language;
    if (t.asked_task.empty()) t.asked_task = task;
    return Status::ok();
  }
  static std::string shortened(const std::string& text) {
    constexpr size_t kMost = 60;
    return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
  }

  static constexpr int64_t kEnglishTimestamp = 50363;  // <|0.00|> of the English-only vocabulary, the smallest there is

  const ModelFolder& folder_;
  const FolderTokenizer& tokenizer_;
  const int64_t vocabulary_;
  Json config_ = Json::object();
};

}  // namespace

Result<SpeechTokens> read_speech_tokens(const ModelFolder& folder, const FolderTokenizer& tokenizer,
                                        int64_t vocabulary) {
  return Reader(folder, tokenizer, vocabulary).read();
}

}  // namespace situ
