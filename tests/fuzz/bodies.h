// Bodies of calls, as the server reads them: JSON, what it asks for, the prompt that the chat template makes of it, the
// grammar of its answer.
#pragma once

#include <nlohmann/json.hpp>

#include "fuzz_input.h"
#include "onnx/test_model.h"
#include "serve/body_limits.h"
#include "serve/media_bytes.h"
#include "serve/protocol.h"
#include "serve/requests.h"
#include "situ/model.h"
#include "text/dialog/test_templates.h"
#include "text/grammar.h"

namespace situ::fuzz {

// A decoder whose tokens are bytes, with this chat template.
inline Model load_with(const std::string& chat_template) {
  constexpr int64_t kVocabulary = 261;
  const onnx::test::TempFolder folder;
  folder.write("model.onnx", onnx::test::table_model(std::vector<float>(kVocabulary * kVocabulary), kVocabulary));
  folder.write("tokenizer.json", testing::byte_level_tokenizer().dump());
  folder.write("tokenizer_config.json",
               nlohmann::json({{"chat_template", chat_template}, {"bos_token", "<s>"}}).dump());
  LoadOptions options;
  options.context_length = 16384;
  options.threads = 1;
  Result<Model> model = Model::load(folder.path().string(), options);
  EXPECT_TRUE(model.is_ok()) << model.status().message();
  return std::move(*model);
}

// The model that a body names: one for each way in which templates show tools, calls and reasoning. Others: the first.
inline const Model& model_of(const serve::Json& body) {
  static const std::vector<std::pair<std::string, std::string>> templates = {
      {"qwen3", testing::kQwen3Template},
      {"plain", testing::kPlainTemplate},
      {"mistral", testing::kMistralTemplate},
      {"llama3", testing::kLlama3Template},
      {"channels", testing::kChannelTemplate},
      {"coder", testing::chat_template(testing::kQwenCoderCalls)},
      {"deepseek", testing::chat_template(testing::kDeepSeekCalls)},
      {"python", testing::chat_template(testing::python_calls("[", ", ", "]"))},
      {"literals", testing::chat_template(testing::kLiteralCalls)}};
  static std::vector<std::unique_ptr<Model>> models(templates.size());
  const serve::Json name = body.value("model", serve::Json());
  size_t which = 0;
  for (size_t i = 0; i < templates.size(); ++i)
    if (name == templates[i].first) which = i;
  if (!models[which]) models[which] = std::make_unique<Model>(load_with(templates[which].second));
  return *models[which];
}

// A refusal is one line, and JSON in the form of its protocol.
inline void check_refusal(const serve::Protocol& protocol, const serve::Refusal& refusal) {
  EXPECT_NE(refusal.message, "");
  EXPECT_EQ(refusal.message.find('\n'), std::string::npos) << refusal.message;
  const serve::ErrorText error = protocol.error(refusal, "id");
  EXPECT_TRUE(error.status >= 400 && error.status < 500) << error.status << " " << refusal.message;
  EXPECT_TRUE(serve::Json::accept(error.json)) << error.json;
}

// What there is, or nothing where it is refused.
template <typename T>
T* taken(const serve::Protocol& protocol, serve::OrRefusal<T>& value) {
  if (const serve::Refusal* refusal = std::get_if<serve::Refusal>(&value))
    return check_refusal(protocol, *refusal), nullptr;
  return &std::get<T>(value);
}

inline void check_requests(const serve::Protocol& protocol, serve::Ask& ask) {
  const bool shown = !ask.tools.empty() && ask.tool_choice.kind != ToolChoice::Kind::kNone;
  serve::OrRefusal<std::vector<Request>> read = serve::requests_of(ask);
  const std::vector<Request>* requests = taken(protocol, read);
  if (!requests) return;
  EXPECT_EQ(requests->size(), ask.prompts.size());
  for (const Request& request : *requests) EXPECT_FALSE(request.prompt.ids().empty());
  EXPECT_EQ(ask.dialog.grammar.source.empty() && shown, false);
  if (ask.dialog.grammar.source.empty()) return;
  const Status status = Grammar::check(GrammarKind::kAnswer, ask.dialog.grammar.source);
  if (refused(status)) check_refusal(protocol, serve::refusal_of(ask, Status::wrong_option("tools", status.message())));
}

// The whole way of a body up to where a model would run.
inline void read_and_render(const serve::Protocol& protocol, const uint8_t* data, size_t size) {
  serve::OrRefusal<serve::Json> body = serve::parse_body({reinterpret_cast<const char*>(data), size});
  const serve::Json* json = taken(protocol, body);
  if (!json) return;
  serve::Limits limits;
  limits.image_pixels = limits.sound_seconds = 100;
  if (const std::optional<serve::Refusal> refusal = serve::beyond_limits(*json, limits))
    return check_refusal(protocol, *refusal);
  const Model& model = model_of(*json);
  serve::OrRefusal<serve::Ask> strict = protocol.read(*json, model, {nullptr, true});
  taken(protocol, strict);
  serve::OrRefusal<serve::Ask> lenient = protocol.read(*json, model, {});
  serve::Ask* ask = taken(protocol, lenient);
  if (!ask) return;
  EXPECT_EQ(ask->ignored.header().find_first_of("\r\n"), std::string::npos);
  if (const Prompt* conversation = std::get_if<Prompt>(&ask->input)) {
    serve::OrRefusal<int64_t> bytes = serve::bytes_of_media(*conversation, limits);
    if (!taken(protocol, bytes)) return;
    serve::Ask again = *ask;
    serve::OrRefusal<std::string> rendered = serve::text_of(again);
    const std::string* text = taken(protocol, rendered);
    if (!text) return;
    EXPECT_NO_THROW(static_cast<void>(serve::Json(*text).dump()));  // UTF-8
  }
  check_requests(protocol, *ask);
}

}  // namespace situ::fuzz
