#include "text/dialog/find_form.h"

#include <gtest/gtest.h>

#include "text/dialog/test_templates.h"

namespace situ {
namespace {

using Kind = CallForm::Kind;

using testing::form_of;

// What of a form is looked at.
struct Expected {
  std::string what, chat_template;
  Kind kind;
  std::string open, call_open, call_close, between, close;
};

const Expected kForms[] = {
    {"Hermes", testing::chat_template(testing::kHermesCalls), Kind::kObject, "", "\n<tool_call>\n", "\n</tool_call>",
     "", ""},
    {"Qwen3", testing::kQwen3Template, Kind::kObject, "", "\n<tool_call>\n", "\n</tool_call>", "", ""},
    {"Llama3", testing::kLlama3Template, Kind::kObject, "", "", "", "", ""},
    {"Mistral", testing::kMistralTemplate, Kind::kObject, "[TOOL_CALLS] [", "", "", ", ", "]"},
    {"Nemotron", testing::chat_template(testing::kNemotronCalls), Kind::kObject, "<TOOLCALL>[", "", "", ", ",
     "]</TOOLCALL>"},
    {"Apertus", testing::chat_template(testing::kApertusCalls), Kind::kObject, "<|tools_prefix|>[", "", "", ", ",
     "]<|tools_suffix|>"},
    {"MiniMax1", testing::chat_template(testing::kMiniMax1Calls), Kind::kObject, "<tool_calls>\n", "", "\n", "",
     "</tool_calls>"},
    {"Wrapped", testing::chat_template(testing::kWrappedCalls), Kind::kObject, "", "<tool_call>", "</tool_call>", "",
     ""},
    {"Small32", testing::chat_template(testing::kSmall32Calls), Kind::kNamed, "", "[TOOL_CALLS]", "", "", ""},
    {"Devstral", testing::chat_template(testing::kDevstralCalls), Kind::kNamed, "", "[TOOL_CALLS]", "", "", ""},
    {"DeepSeek", testing::chat_template(testing::kDeepSeekCalls), Kind::kNamed, "<｜tool▁calls▁begin｜>",
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```<｜tool▁call▁end｜>", "\n", "<｜tool▁calls▁end｜>"},
    {"Kimi", testing::chat_template(testing::kKimiCalls), Kind::kNamed, "<|tool_calls_section_begin|>",
     "<|tool_call_begin|>functions.", "<|tool_call_end|>", "", "<|tool_calls_section_end|>"},
    {"QwenCoder", testing::chat_template(testing::kQwenCoderCalls), Kind::kTagged, "",
     "\n<tool_call>\n<function=", "\n</function>\n</tool_call>", "", ""},
    {"Glm", testing::chat_template(testing::kGlmCalls), Kind::kTagged, "", "\n<tool_call>", "\n</tool_call>", "", ""},
    {"MiniMax2", testing::chat_template(testing::kMiniMax2Calls), Kind::kTagged, "\n<minimax:tool_call>",
     "\n<invoke name=\"", "\n</invoke>", "", "\n</minimax:tool_call>"},
    {"Llama4", testing::chat_template(testing::python_calls("[", ", ", "]")), Kind::kPython, "[", "", "", ", ", "]"},
    {"Lfm2", testing::chat_template(testing::python_calls("<|tool_call_start|>[", ", ", "]<|tool_call_end|>")),
     Kind::kPython, "<|tool_call_start|>[", "", "", ", ", "]<|tool_call_end|>"},
    {"Olmo3", testing::chat_template(testing::python_calls("<function_calls>", "\\n", "</function_calls>")),
     Kind::kPython, "<function_calls>", "", "", "\n", "</function_calls>"},
    {"Channels", testing::kChannelTemplate, Kind::kChannels, "", "", "", "", ""},
    {"Literals", testing::chat_template(testing::kLiteralCalls), Kind::kLiterals, "",
     "<start_function_call>call:", "<end_function_call>", "", ""},
};

TEST(FindForm, OfEachKindOfTemplate) {
  for (const Expected& e : kForms) {
    SCOPED_TRACE(e.what);
    const Form form = form_of(e.chat_template);
    EXPECT_TRUE(form.calls_shown);
    EXPECT_TRUE(form.tools_shown);
    EXPECT_TRUE(form.results_shown);
    EXPECT_EQ(form.calls.kind, e.kind);
    EXPECT_EQ(form.calls.open, e.open);
    EXPECT_EQ(form.calls.call_open, e.call_open);
    EXPECT_EQ(form.calls.call_close, e.call_close);
    EXPECT_EQ(form.calls.between, e.between);
    EXPECT_EQ(form.calls.close, e.close);
  }
}

TEST(FindForm, WhatAHistoryMayHave) {
  const Form mistral = form_of(testing::kMistralTemplate);
  EXPECT_EQ(mistral.ids, Form::Ids::kNineLetters);
  EXPECT_FALSE(mistral.system_shown);
  EXPECT_EQ(mistral.dropped, std::vector<std::string>{"the text beside a call"});
  EXPECT_EQ(mistral.calls.shape, R"({"name":"$name","arguments":"$arguments","id":"$id"})");
  const Form llama = form_of(testing::kLlama3Template);
  EXPECT_EQ(llama.dropped, std::vector<std::string>{"the text beside a call"});
  EXPECT_EQ(llama.calls.shape, R"({"name":"$name","parameters":"$arguments"})");
  EXPECT_TRUE(llama.calls.bare());
  EXPECT_FALSE(llama.calls.several);
  EXPECT_TRUE(form_of(testing::chat_template(testing::kDeepSeekCalls)).arguments_as_text);
  EXPECT_EQ(form_of(testing::chat_template(testing::kKimiCalls)).ids, Form::Ids::kFunctionIndex);
  EXPECT_EQ(form_of(testing::chat_template(testing::kApertusCalls)).calls.shape, R"({"$name":"$arguments"})");
  EXPECT_FALSE(form_of(testing::chat_template(testing::kHermesCalls)).arguments_as_text);
}

TEST(FindForm, TheDocumentedFormWhereATemplateHasNone) {
  const Form form = form_of(testing::kPlainTemplate);
  EXPECT_FALSE(form.calls_shown);
  EXPECT_FALSE(form.tools_shown);
  EXPECT_FALSE(form.results_shown);
  EXPECT_TRUE(form.system_shown);
  EXPECT_EQ(form.default_system, "You help.");
  EXPECT_EQ(form.calls.call_open, "<tool_call>\n");
  EXPECT_EQ(form.reasoning.open, "");
  EXPECT_EQ(form.reasoning.switch_name, "");
}

// A template that shows tools and leaves calls out: what tokens tell, else the documented form.
TEST(FindForm, CallsThatTheTemplateLeavesOut) {
  const Form granite = form_of(testing::chat_template("{# <|tool_call|> #}"));
  EXPECT_FALSE(granite.calls_shown);
  EXPECT_TRUE(granite.tools_shown);
  EXPECT_EQ(granite.calls.open, "<|tool_call|>[");
  // A template that breaks on calls.
  const Form kimi = form_of(
      testing::chat_template("{{ raise_exception('<|tool_calls_section_begin|> <|tool_call_argument_begin|>') }}"));
  EXPECT_FALSE(kimi.calls_shown);
  EXPECT_TRUE(kimi.tools_shown);
  EXPECT_EQ(kimi.calls.call_open, "<|tool_call_begin|>functions.");
  const Form none = form_of(testing::chat_template(""));
  EXPECT_FALSE(none.tools_shown);
  EXPECT_EQ(none.calls.call_open, "<tool_call>\n");
}

TEST(FindForm, Reasoning) {
  const Form qwen = form_of(testing::kQwen3Template);
  EXPECT_EQ(qwen.reasoning.open, "<think>\n");
  EXPECT_EQ(qwen.reasoning.close, "\n</think>");
  EXPECT_EQ(qwen.reasoning.field, "reasoning_content");
  EXPECT_EQ(qwen.reasoning.switch_name, "enable_thinking");
  EXPECT_EQ(qwen.reasoning.effort_name, "");
  EXPECT_FALSE(qwen.reasoning.open_in("<|im_start|>assistant\n"));
  EXPECT_TRUE(qwen.reasoning.open_in("<|im_start|>assistant\n<think>\n"));
  // A history without thoughts, and a prompt that opens them.
  const Form opened =
      form_of(testing::chat_template(testing::kHermesCalls, "", R"({{ '<think>\n' }})") + "{# </think> #}");
  EXPECT_EQ(opened.reasoning.open, "<think>\n");
  EXPECT_EQ(opened.reasoning.close, "</think>");
  EXPECT_EQ(opened.reasoning.field, "");
  // A plan beside calls, whose numbers the template makes.
  const Form plan = form_of(testing::chat_template(
      R"({{ '<|P|>' + m.tool_plan | default('') + '<|/P|><|ACT|>[' }}{% for c in m.tool_calls %}{{ '{"id": "' + (loop.index0 | string) + '", "name": "' + c.function.name + '", "arguments": ' }}{{ c.function.arguments | tojson }}{{ '}' }}{% if not loop.last %}{{ ', ' }}{% endif %}{% endfor %}{{ ']<|/ACT|>' }})"));
  EXPECT_EQ(plan.reasoning.field, "tool_plan");
  EXPECT_EQ(plan.reasoning.open, "<|P|>");
  EXPECT_EQ(plan.reasoning.close, "<|/P|>");
  EXPECT_EQ(plan.calls.open, "<|ACT|>[");
  EXPECT_EQ(plan.calls.shape, R"({"id":"$id","name":"$name","arguments":"$arguments"})");
  const Form channels = form_of(testing::kChannelTemplate);
  EXPECT_EQ(channels.reasoning.open, "");
  EXPECT_EQ(channels.reasoning.field, "thinking");
}

TEST(FindForm, OfAModelBeside) {
  const auto folder = testing::shared_model("smollm2-135m-instruct-int4");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  const Form form = find_form(FolderTokenizer::load(folder).value());
  EXPECT_FALSE(form.tools_shown);
  EXPECT_TRUE(form.default_system.starts_with("You are a helpful AI assistant")) << form.default_system;
}

}  // namespace
}  // namespace situ
