#include "dialog/history.h"

#include <gtest/gtest.h>

#include "dialog/test_templates.h"

namespace situ {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<Tool> kTools = {
    {"weather", "Of a city.", R"({"type": "object", "properties": {"city": {"type": "string"}}})"}};

Json conversation() {
  return Json::parse(R"([{"role": "user", "content": "Oslo?"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "call_0123456789", "type": "function",
      "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}}]},
    {"role": "tool", "tool_call_id": "call_0123456789", "content": "4 degrees"}])");
}

// The prompt that a template makes of a conversation.
std::string rendered(const std::string& chat_template, Json messages, std::span<const Tool> tools = kTools) {
  const FolderTokenizer tokenizer = testing::tokenizer_with(chat_template);
  Json variables = Json::object();
  fit_history(find_form(tokenizer), tools, messages, variables);
  const auto text = tokenizer.apply_chat_template(messages.dump(), true, variables.dump());
  EXPECT_TRUE(text.is_ok()) << text.status().message();
  return text.is_ok() ? *text : "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(History, ArgumentsAndIdsAsTheTemplateTakesThem) {
  const std::string mistral = rendered(testing::kMistralTemplate, conversation());
  EXPECT_TRUE(has(mistral, R"([TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Oslo"}, "id": "call00000"}])"))
      << mistral;
  EXPECT_TRUE(has(mistral, R"("call_id": "call00000")")) << mistral;
  const std::string kimi = rendered(testing::chat_template(testing::kKimiCalls), conversation());
  EXPECT_TRUE(has(
      kimi, R"(<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{"city": "Oslo"}<|tool_call_end|>)"))
      << kimi;
  const std::string deepseek = rendered(testing::chat_template(testing::kDeepSeekCalls), conversation());
  EXPECT_TRUE(has(deepseek, "weather\n```json\n{\"city\":\"Oslo\"}\n```")) << deepseek;
  // The name of a result is that of its call.
  EXPECT_TRUE(has(rendered(testing::kChannelTemplate, conversation()), "<|start|>functions.weather to=assistant"));
}

TEST(History, ToolsAndCallsAreTextWhereTheTemplateShowsNone) {
  const std::string text = rendered(testing::kPlainTemplate, conversation());
  EXPECT_TRUE(text.starts_with("<|im_start|>system\nYou help.\n\n# Tools\n")) << text;
  EXPECT_TRUE(has(
      text,
      R"({"type":"function","function":{"name":"weather","description":"Of a city.","parameters":{"type":"object",)"))
      << text;
  EXPECT_TRUE(has(text,
                  "<|im_start|>assistant\n<tool_call>\n{\"name\":\"weather\",\"arguments\":{\"city\":\"Oslo\"}}\n</"
                  "tool_call><|im_end|>"))
      << text;
  EXPECT_TRUE(has(text, "<|im_start|>user\n<tool_response>\n4 degrees\n</tool_response><|im_end|>")) << text;
  Json messages = conversation();
  messages.insert(messages.begin(), Json({{"role", "system"}, {"content", "Be brief."}}));
  messages.push_back(Json::parse(R"({"role": "tool", "content": [{"type": "text", "text": "more"}]})"));
  const std::string own = rendered(testing::kPlainTemplate, messages);
  EXPECT_TRUE(own.starts_with("<|im_start|>system\nBe brief.\n\n# Tools\n")) << own;
  EXPECT_TRUE(has(own, "</tool_response>\n<tool_response>\nmore\n</tool_response><|im_end|>")) << own;
  // Without tools the template's own text stays, and nothing is added.
  EXPECT_EQ(rendered(testing::kPlainTemplate, Json::array({{{"role", "user"}, {"content", "Hi"}}}), {}),
            "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(History, ArgumentsThatAreNoObject) {
  Json messages = conversation();
  Json& function = messages[1]["tool_calls"][0]["function"];
  for (const Json& arguments : {Json(""), Json(), Json(Json::object()), Json("null")}) {
    function["arguments"] = arguments;
    EXPECT_TRUE(has(rendered(testing::chat_template(testing::kHermesCalls), messages), R"("arguments": {}})"))
        << arguments;
  }
  function["arguments"] = "{broken";  // no text is lost
  EXPECT_TRUE(has(rendered(testing::chat_template(testing::kHermesCalls), messages), R"("arguments": "{broken"})"));
}

TEST(History, ReasoningUnderTheTemplatesKey) {
  const Json messages = Json::array(
      {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "b"}, {"reasoning_content", "hm"}}});
  EXPECT_TRUE(has(rendered(testing::kQwen3Template, messages), "<think>\nhm\n</think>\n\nb"));
  EXPECT_TRUE(has(rendered(testing::kChannelTemplate, messages), "analysis<|message|>hm<|end|>"));
}

}  // namespace
}  // namespace situ
