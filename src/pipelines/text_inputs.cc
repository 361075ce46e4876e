#include "pipelines/text_inputs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/assign.h"
#include "text/json_file.h"

namespace situ {

Result<std::string> TextInputs::prompt_of(const ModelFolder& folder, const SentenceFiles& files,
                                          const EmbedOptions& options) {
  const auto refuse = [&](const std::string& file, const std::string& why) {
    return Status::error(Code::kInvalidArgument, file + ": " + why);
  };
  if (options.prompt && options.prompt_name)
    return refuse(folder.model_file.string(), "a prompt and the name of one are given: either of them");
  if (options.prompt) {
    SITU_RETURN_IF_ERROR(check_utf8(*options.prompt, "the prompt").or_code(Code::kInvalidArgument));
    return *options.prompt;
  }
  if (!options.prompt_name) return files.default_prompt;
  const auto found = files.prompts.find(*options.prompt_name);
  if (found != files.prompts.end()) return found->second;
  std::string names;
  for (const auto& [name, text] : files.prompts) names += (names.empty() ? "" : ", ") + name;
  return refuse(folder.folder.string(), "no prompt is called '" + *options.prompt_name + "'; there " +
                                            (names.empty() ? "are none" : "are " + names))
      .or_option("prompt_name");
}

Result<std::string> TextInputs::prepared(const std::string& text) const {
  return files_.do_lower_case ? lower_text(text) : Result<std::string>(text);
}

Result<int64_t> TextInputs::prompt_tokens(const std::string& prompt) const {
  if (prompt.empty() || files_.templated || !files_.pooling || files_.pooling->include_prompt) return 0;
  const Result<EncodedTexts> tokens = plain({&prompt, 1}, "");
  if (!tokens.is_ok()) return tokens.status();
  const int64_t count = std::ssize(tokens->ids);
  return count > 0 && tokenizer_.is_special(tokens->ids.back()) ? count - 1 : count;
}

Result<EncodedTexts> TextInputs::plain(std::span<const std::string> texts, const std::string& prompt) const {
  std::vector<std::string> ready;
  for (const std::string& text : texts) {
    Result<std::string> one = prepared(ready.empty() ? prompt + text : text);
    if (!one.is_ok()) return one.status();
    ready.push_back(std::move(*one));
  }
  const std::vector<std::string_view> views(ready.begin(), ready.end());
  return tokenizer_.encode_texts(views, most_);
}

// A text is a user's message; the texts of a pair are messages of the roles query and document.
Result<std::string> TextInputs::rendered(std::span<const std::string> texts, const std::string& prompt) const {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  const auto add = [&](const char* role, const std::string& text) {
    nlohmann::ordered_json content = text;
    if (files_.templated->lists) content = {{{"type", "text"}, {"text", text}}};
    messages.push_back({{"role", role}, {"content", std::move(content)}});
  };
  if (!prompt.empty()) add("system", prompt);
  if (texts.size() == 1) add("user", texts[0]);
  if (texts.size() > 1) add("query", texts[0]), add("document", texts[1]);
  const TemplatedTexts& how = *files_.templated;
  return tokenizer_.apply_chat_template(json_text(messages), how.generation_prompt, how.variables_json);
}

// The tokens at the end that do not depend on the texts, told from two conversations that share none of them.
Result<std::vector<int64_t>> TextInputs::template_end(size_t texts, const std::string& prompt) const {
  std::vector<int64_t> ids[2];
  for (const size_t i : {0, 1}) {
    const std::vector<std::string> fillers(texts, i == 0 ? "0" : "1 2 3 4");
    const Result<std::string> text = rendered(fillers, prompt);
    if (!text.is_ok()) return text.status();
    Result<std::vector<int64_t>> made = tokenizer_.encode(*text, false);
    if (!made.is_ok()) return made;
    ids[i] = std::move(*made);
  }
  const auto [first, second] = std::mismatch(ids[0].rbegin(), ids[0].rend(), ids[1].rbegin(), ids[1].rend());
  if (first == ids[0].rend() || second == ids[1].rend()) return std::vector<int64_t>();
  return std::vector<int64_t>(first.base(), ids[0].end());
}

Result<EncodedTexts> TextInputs::templated(std::span<const std::string> texts, const std::string& prompt) const {
  if (!tokenizer_.has_chat_template())
    return Status::error(Code::kUnsupportedModel, folder_.folder.string() +
                                                      ": texts go through the chat template (modality_config), and "
                                                      "the folder has none");
  if (texts.size() > 1) {
    const std::string probes[] = {"situquery", "situdocument"};
    const Result<std::string> shown = rendered(probes, "");
    const auto has = [&](const std::string& probe) { return shown.is_ok() && shown->find(probe) != std::string::npos; };
    if (!has(probes[0]) || !has(probes[1]))
      return Status::error(Code::kUnsupportedModel,
                           folder_.folder.string() +
                               ": the chat template does not write the messages of the roles query and document" +
                               (shown.is_ok() ? "" : ": " + shown.status().message()));
  }
  const Result<std::string> text = rendered(texts, prompt);
  if (!text.is_ok()) return text.status();
  Result<std::string> ready = prepared(*text);
  if (!ready.is_ok()) return ready.status();
  Result<std::vector<int64_t>> ids = tokenizer_.encode(*ready, false);
  if (!ids.is_ok()) return ids.status();
  EncodedTexts made{std::move(*ids), {}, false};
  made.cut = std::ssize(made.ids) > most_;
  if (!made.cut) return made;
  const bool left = tokenizer_.config().cuts_left;
  made.ids.erase(left ? made.ids.begin() : made.ids.begin() + most_, left ? made.ids.end() - most_ : made.ids.end());
  if (!files_.templated->restores_end) return made;
  const Result<std::vector<int64_t>> end = template_end(texts.size(), prompt);
  if (!end.is_ok()) return end.status();
  const int64_t kept = std::min(std::ssize(*end), most_);
  made.ids.resize(static_cast<size_t>(most_ - kept));
  made.ids.insert(made.ids.end(), end->end() - kept, end->end());
  return made;
}

Result<EncodedTexts> TextInputs::tokens_of(std::span<const std::string> texts, const std::string& prompt, size_t number,
                                           std::vector<std::string>* notes) const {
  const std::string name = (texts.size() > 1 ? "pair " : "text ") + std::to_string(number + 1);
  for (const std::string& text : texts) SITU_RETURN_IF_ERROR(check_utf8(text, name).or_code(Code::kInvalidArgument));
  Result<EncodedTexts> tokens = files_.templated ? templated(texts, prompt) : plain(texts, prompt);
  if (!tokens.is_ok()) return tokens.status().or_code(Code::kInvalidArgument).with_context(name);
  if (tokens->cut) notes->push_back(name + " is longer than " + std::to_string(most_) + " tokens, and was cut");
  if (tokens->ids.empty()) return Status::error(Code::kInvalidArgument, name + " has no tokens");
  if (!tokenizer_.config().has_token_types) tokens->types.clear();
  return tokens;
}

Result<std::vector<EncodedTexts>> TextInputs::tokens_of_pairs(std::span<const TextPair> pairs,
                                                              const std::string& prompt, PairScores* made) const {
  std::vector<EncodedTexts> read;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const std::string both[] = {pairs[i].first, pairs[i].second};
    SITU_TAKE(tokens, tokens_of(both, prompt, i, &made->notes));
    made->tokens.push_back(std::ssize(tokens.ids));
    read.push_back(std::move(tokens));
  }
  return read;
}

Status TextInputs::check_pairs(const ModelFolder& folder, const FolderTokenizer* tokenizer,
                               std::span<const TextPair> pairs, const EmbedOptions& options) {
  const char* const wrong = pairs.empty()        ? "no pair of texts is given"
                            : options.dimensions ? "dimensions are for embeddings, not for pairs of texts"
                                                 : nullptr;
  if (wrong) return Status::error(Code::kInvalidArgument, folder.model_file.string() + ": " + wrong);
  if (!tokenizer) return Status::error(Code::kNotFound, folder.no_tokenizer + ", which pairs of texts need");
  return Status::ok();
}

}  // namespace situ
