#include "text/dialog/history.h"

#include <gtest/gtest.h>

#include "text/dialog/test_templates.h"

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
  fit_history(testing::form_of(chat_template), tools, messages, variables);
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
  EXPECT_TRUE(has(rendered(testing::chat_template(testing::kHermesCalls), messages),
                  R"("arguments": {"arguments": "{broken"}})"));
  EXPECT_TRUE(has(rendered(testing::chat_template(testing::kQwenCoderCalls), messages),
                  "<parameter=arguments>\n{broken\n</parameter>"));
  EXPECT_TRUE(has(rendered(testing::chat_template(testing::python_calls("[", ", ", "]")), messages),
                  "[weather(arguments=\"{broken\")]"));
  EXPECT_TRUE(has(rendered(testing::chat_template(testing::kDeepSeekCalls), messages), "```json\n{broken\n```"));
  EXPECT_TRUE(has(rendered(testing::kPlainTemplate, messages), R"("arguments":{"arguments":"{broken"})"));
  // Deeper than any JSON that is read.
  function["arguments"] = R"({"a":)" + std::string(70000, '[') + std::string(70000, ']') + "}";
  EXPECT_TRUE(has(rendered(testing::chat_template(testing::kHermesCalls), messages), R"({"arguments": "{\"a\":[[[)"));
}

// A template that takes one call of an answer: an answer a call, with its results behind it.
TEST(History, SeveralCallsWhereATemplateTakesOne) {
  const Json messages = Json::parse(R"([{"role": "user", "content": "Both?"},
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "a", "function": {"name": "weather", "arguments": "{\"city\": \"Oslo\"}"}},
      {"id": "b", "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}]},
    {"role": "tool", "tool_call_id": "b", "content": "of b"}, {"role": "tool", "tool_call_id": "a", "content": "of a"},
    {"role": "user", "content": "So?"}])");
  const std::string text = rendered(testing::kLlama3Template, messages);
  size_t at = 0;
  for (const char* part :
       {"Both?", R"("parameters": {"city": "Oslo"}})", "of a", R"({"city": "Rome"}})", "of b", "So?"}) {
    at = text.find(part, at);
    ASSERT_NE(at, std::string::npos) << part << " in " << text;
  }
  EXPECT_FALSE(has(rendered(testing::chat_template(testing::kHermesCalls), messages),
                   "</tool_call><|im_end|>\n<|im_start|>assistant\n\n<tool_call>"));
}

// A template that reads calls beside a content of null only.
TEST(History, CallsBesideNull) {
  std::string chat_template = testing::chat_template(testing::kDeepSeekCalls);
  chat_template.replace(chat_template.find("{{ m.content }}{%- if m.tool_calls -%}"), 38, "{% if m.content is none %}");
  chat_template.replace(chat_template.find("{%- endif -%}{{ '<|im_end|>"), 13, "{% else %}{{ m.content }}{% endif -%}");
  Json messages = conversation();
  const std::string called = "function<｜tool▁sep｜>weather\n```json\n{\"city\":\"Oslo\"}\n```";
  EXPECT_TRUE(has(rendered(chat_template, messages), called)) << rendered(chat_template, messages);
  messages[1]["content"] = "Let me look.";
  const std::string text = rendered(chat_template, messages);
  EXPECT_TRUE(has(text, called) && has(text, "assistant\nLet me look.<|im_end|>")) << text;
}

TEST(History, ReasoningUnderTheTemplatesKey) {
  const Json messages = Json::array(
      {{{"role", "user"}, {"content", "a"}}, {{"role", "assistant"}, {"content", "b"}, {"reasoning_content", "hm"}}});
  EXPECT_TRUE(has(rendered(testing::kQwen3Template, messages), "<think>\nhm\n</think>\n\nb"));
  EXPECT_TRUE(has(rendered(testing::kChannelTemplate, messages), "analysis<|message|>hm<|end|>"));
}

// Images of results: with the results where the template shows them there, else in a turn of the user behind them.
TEST(History, ImagesOfResults) {
  Json messages = conversation();
  messages[2]["content"] = Json::parse(R"([{"type": "text", "text": "a map"}, {"type": "image"}])");
  messages.push_back(Json::parse(R"({"role": "tool", "content": [{"type": "image"}]})"));
  messages.push_back(Json::parse(R"({"role": "user", "content": "So?"})"));
  const std::string content =
      "{% if c is string %}{{ c }}{% else %}{% for p in c %}{{ '<image>' if p.type == 'image' else p.text }}{% endfor "
      "%}{% endif %}";
  const std::string turns =
      R"({% for m in messages %}{% set c = m.content %}{{ '<' + m.role + '>' }})" + content +
      R"({% for t in m.tool_calls %}{{ '<call>{"name": "' + t.function.name + '", "arguments": ' }}{{ t.function.arguments | tojson }}{{ '}</call>' }}{% endfor %}{% endfor %})";
  const std::string tools = "{% for t in tools %}{{ t | tojson }}{% endfor %}";
  EXPECT_TRUE(has(rendered(tools + turns, messages), "<tool>a map<image><tool><image><user>So?"))
      << rendered(tools + turns, messages);
  // Results are texts alone there.
  const std::string apart =
      tools +
      R"({% for m in messages %}{% set c = m.content %}{{ '<' + m.role + '>' }}{% if m.role == 'tool' %}{{ '' + c }}{% else %})" +
      content +
      R"({% endif %}{% for t in m.tool_calls %}{{ '<call>{"name": "' + t.function.name + '", "arguments": ' }}{{ t.function.arguments | tojson }}{{ '}</call>' }}{% endfor %}{% endfor %})";
  EXPECT_TRUE(has(rendered(apart, messages), "<tool>a map<tool><user><image><image><user>So?"))
      << rendered(apart, messages);
  // There are none.
  const std::string none =
      R"({% for m in messages %}{% set c = m.content %}{{ '<' + m.role + '>' }})" + content + "{% endfor %}";
  EXPECT_TRUE(has(
      rendered(
          "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('none') }}{% endif %}{% endfor %}" + none,
          messages),
      "<user><tool_response>\na map\n</tool_response>\n<tool_response>\n\n</tool_response><image><image><user>So?"));
}

// A template that shows calls and no tools: the tools are described in a text that has its spelling of calls.
TEST(History, ToolsThatATemplateLeavesOutAreCalledInItsSpelling) {
  std::string chat_template = testing::chat_template(testing::kDeepSeekCalls);
  chat_template.replace(chat_template.find("if tools"), 8, "if none_");
  const std::string text = rendered(chat_template, conversation());
  EXPECT_TRUE(has(text,
                  "as "
                  "follows:\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n{"
                  "\"ARGUMENT\":\"VALUE\"}\n```"))
      << text;
  EXPECT_FALSE(has(text, "results come back")) << text;
  EXPECT_TRUE(has(text, "function<｜tool▁sep｜>weather\n```json\n{\"city\":\"Oslo\"}\n```")) << text;
  std::string ids = testing::chat_template(testing::kSmall32Calls);
  ids.replace(ids.find("if tools"), 8, "if none_");
  EXPECT_TRUE(has(rendered(ids, conversation()), R"([TOOL_CALLS]NAME[CALL_ID]call00000[ARGS]{"ARGUMENT":"VALUE"})"));
}
// A template that makes ids of its own in calls, and shows those of results as they are.
TEST(History, IdsThatATemplateMakes) {
  const std::string own =
      R"({{ '<|tool_calls_section_begin|>' }}{% for c in m.tool_calls %}{{ '<|tool_call_begin|>functions.' + c.function.name + ':' + (N | string) + '<|tool_call_argument_begin|>' }}{{ c.function.arguments | tojson }}{{ '<|tool_call_end|>' }}{% endfor %}{{ '<|tool_calls_section_end|>' }})";
  const std::string result = R"({{ '<|im_start|>tool\n## ' + m.tool_call_id + '\n' + m.content + '<|im_end|>\n' }})";
  Json messages = conversation();
  for (const Json& turn : conversation()) messages.push_back(turn);
  messages[4]["tool_calls"][0]["id"] = messages[5]["tool_call_id"] = "other";
  std::string by_answer = own, by_conversation = own;
  by_answer.replace(own.find("N |"), 1, "loop.index0");
  by_conversation.replace(own.find("N |"), 1, "count.value");
  by_conversation.replace(by_conversation.find("{{ c.function"), 0, "{% set count.value = count.value + 1 %}");
  const std::string first = rendered(testing::chat_template(by_answer, "", "", result), messages);
  EXPECT_TRUE(has(first, "## functions.weather:0\n4 degrees") && !has(first, "weather:1")) << first;
  const std::string second = rendered(
      "{%- set count = namespace(value=0) -%}" + testing::chat_template(by_conversation, "", "", result), messages);
  EXPECT_TRUE(has(second, "## functions.weather:0\n4 degrees") && has(second, "## functions.weather:1\n4 degrees"))
      << second;
}
}  // namespace
}  // namespace situ
