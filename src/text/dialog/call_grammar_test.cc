#include "text/dialog/call_grammar.h"

#include <gtest/gtest.h>

#include "base/sweep_for_tests.h"
#include "text/dialog/answer_reader.h"
#include "text/dialog/test_templates.h"
#include "text/grammar_walk.h"

namespace situ {
namespace {

using Json = nlohmann::ordered_json;
using ChoiceKind = ToolChoice::Kind;

const std::vector<Tool> kTools = {
    {"weather", "Of a city.",
     R"({"type": "object", "properties": {"city": {"type": "string", "format": "password"}, "days": {"type": "integer", "description": "how many", "format": "x"},
      "exact": {"type": "boolean"}, "unit": {"enum": ["C", "F"]},
      "places": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}},
      "required": ["city", "unit"], "additionalProperties": false})"},
    {"now", "", R"({"type": "object", "properties": {}, "additionalProperties": false})"}};

// Whether the grammar takes the text, byte by byte: the beginning of an answer, and a whole one.
struct Taken {
  size_t bytes = 0;
  bool whole = false;
};
Taken taken(const Grammar& start, const std::string& text) {
  Grammar grammar = std::move(start.fork()).value();
  Taken taken;
  for (const char byte : text) {
    if (!grammar.append(static_cast<unsigned char>(byte)).is_ok()) return taken;
    ++taken.bytes;
  }
  taken.whole = grammar.may_end();
  return taken;
}
Taken taken(const FolderTokenizer& tokenizer, const std::string& lark, const std::string& text) {
  return taken(testing::compiled(tokenizer, GrammarKind::kAnswer, lark), text);
}

std::string grammar_of(const Form& form, ToolChoice choice, bool in_reasoning = false, const std::string& rule = "") {
  const auto lark = call_grammar(form, kTools, choice, in_reasoning, nullptr, rule);
  EXPECT_TRUE(lark.is_ok()) << lark.status().message();
  return lark.is_ok() ? *lark : "";
}

struct Case {
  std::string what, chat_template, call, other;
};

const Case kCases[] = {
    {"documented", testing::kPlainTemplate,
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\", \"unit\": \"C\"}}\n</tool_call>",
     "\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>"},
    {"llama3", testing::kLlama3Template, R"({"name": "weather", "parameters": {"city": "Oslo", "unit": "C"}})", ""},
    {"mistral", testing::kMistralTemplate,
     R"([TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Oslo", "unit": "C"}, "id": "abcdefgh1"}])", ""},
    {"apertus", testing::chat_template(testing::kApertusCalls),
     R"(<|tools_prefix|>[{"weather": {"city": "Oslo", "unit": "C"}}]<|tools_suffix|>)", ""},
    {"small32", testing::chat_template(testing::kSmall32Calls),
     R"([TOOL_CALLS]weather[CALL_ID]abcdefgh1[ARGS]{"city": "Oslo", "unit": "C"})",
     "[TOOL_CALLS]now[CALL_ID]abcdefgh1[ARGS]{}"},
    {"deepseek", testing::chat_template(testing::kDeepSeekCalls),
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Oslo\", "
     "\"unit\": \"C\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     ""},
    {"kimi", testing::chat_template(testing::kKimiCalls),
     R"(<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{"city": "Oslo", "unit": "C"}<|tool_call_end|><|tool_calls_section_end|>)",
     ""},
    {"coder", testing::chat_template(testing::kQwenCoderCalls),
     "<tool_call>\n<function=weather>\n<parameter=city>\nOslo < "
     "\"x\"\n</parameter>\n<parameter=unit>\nC\n</parameter>\n</function>\n</tool_call>",
     "\n<tool_call>\n<function=now>\n</function>\n</tool_call>"},
    {"glm", testing::chat_template(testing::kGlmCalls),
     "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</"
     "arg_value>\n<arg_key>unit</arg_key>\n<arg_value>C</arg_value>\n</tool_call>",
     "\n<tool_call>now\n</tool_call>"},
    {"minimax", testing::chat_template(testing::kMiniMax2Calls),
     "<minimax:tool_call>\n<invoke name=\"weather\">\n<parameter name=\"city\">Oslo</parameter>\n<parameter "
     "name=\"unit\">C</parameter>\n</invoke>\n</minimax:tool_call>",
     ""},
    {"llama4", testing::chat_template(testing::python_calls("[", ", ", "]")),
     "[weather(city=\"Oslo\", exact=True, unit=\"C\")]", ""},
    {"olmo3", testing::chat_template(testing::python_calls("<function_calls>", "\\n", "</function_calls>")),
     "<function_calls>weather(city=\"Oslo\", unit=\"C\")\nnow()</function_calls>", ""},
    {"channels", testing::kChannelTemplate,
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.weather<|channel|>commentary "
     "json<|message|>{\"city\": \"Oslo\", \"unit\": \"C\"}",
     ""},
    {"literals", testing::chat_template(testing::kLiteralCalls),
     "<start_function_call>call:weather{city:<escape>Oslo<escape>,unit:<escape>C<escape>,places:[1,2]}<end_function_"
     "call>",
     "<start_function_call>call:now{}<end_function_call>"},
};

class GrammarOfForms : public ::testing::TestWithParam<Case> {};

TEST_P(GrammarOfForms, TakesCallsAndNothingElseBehindTheirMark) {
  const FolderTokenizer tokenizer = testing::tokenizer_with(GetParam().chat_template);
  const Form& form = testing::form_of(GetParam().chat_template);
  const std::string &call = GetParam().call, &other = GetParam().other;
  const std::string text = form.calls.bare() || form.calls.kind == CallForm::Kind::kChannels ? "" : "Let me look.\n";
  for (const ToolChoice& choice :
       {ToolChoice{}, ToolChoice{ChoiceKind::kRequired}, ToolChoice{ChoiceKind::kNamed, "weather", true},
        ToolChoice{ChoiceKind::kAuto, "", false}}) {
    const std::string lark = grammar_of(form, choice);
    const Grammar grammar = testing::compiled(tokenizer, GrammarKind::kAnswer, lark);
    const bool is_auto = choice.kind == ChoiceKind::kAuto,
               several = choice.parallel && choice.kind != ChoiceKind::kNamed;
    if (GetParam().what != "olmo3" || several) {
      EXPECT_TRUE(taken(grammar, call).whole) << "byte " << taken(grammar, call).bytes << " of " << call << "\n"
                                              << lark;
      EXPECT_EQ(taken(grammar, text + call).whole, is_auto || text.empty()) << lark;
    }
    EXPECT_EQ(taken(grammar, "No <call> {of} any.").whole, is_auto && form.calls.kind != CallForm::Kind::kChannels)
        << lark;
    if (!other.empty()) {
      EXPECT_EQ(taken(grammar, call + other).whole, several) << lark;
    }
    const size_t name = call.find("weather");
    EXPECT_LE(taken(grammar, call.substr(0, name) + "rain").bytes, name);
    if (HasFailure()) return;
  }
}

// An answer that is a call, or what was asked for: whatever the first of the two may begin with.
TEST_P(GrammarOfForms, ACallOrWhatTheAnswerMustBe) {
  const FolderTokenizer tokenizer = testing::tokenizer_with(GetParam().chat_template);
  const Form& form = testing::form_of(GetParam().chat_template);
  const bool channels = form.calls.kind == CallForm::Kind::kChannels;
  const std::string head = channels ? "<|channel|>final<|message|>" : "", &call = GetParam().call;
  const std::string object =
      R"(%json {"type": "object", "properties": {"name": {"enum": ["x", "wet"]}, "all": {"type": "array"}}})";
  const std::pair<std::string, std::string> rules[] = {
      {object, R"({"name": "wet", "all": [1]})"},
      {object, R"({"all": ["<tool_call>"]})"},
      {object, "{}"},
      {R"(%json {"type": "array"})", "[1, \"weather(\"]"},
      {"/(?s:[^{].*)?/", "<tool_cat> and [TOOLS]"},
      {"%lark {\nstart: ONE more*\nmore: \", \" ONE\nONE: /[<a-z_]+/\n}", "<tool_ca, b"}};
  for (const auto& [rule, text] : rules) {
    const std::string lark = grammar_of(form, {}, false, rule);
    const Grammar grammar = testing::compiled(tokenizer, GrammarKind::kAnswer, lark);
    EXPECT_TRUE(taken(grammar, head + text).whole) << taken(grammar, head + text).bytes << lark;
    const Taken called = taken(grammar, call);
    if (GetParam().what != "llama4" || !rule.starts_with("/")) {
      EXPECT_TRUE(called.whole) << called.bytes << " of " << call << "\n" << lark;
      const size_t name = call.find("weather");
      EXPECT_LE(taken(grammar, call.substr(0, name) + "rainy").bytes, name + 3) << lark;
    }
    EXPECT_FALSE(taken(grammar, "Well. " + call).whole && rule.starts_with("%json"));
    AnswerReader reader(form, kTools, false, true);
    std::string shown;
    std::vector<DialogEvent> events = reader.push(head + text);
    for (DialogEvent& event : reader.finish()) events.push_back(std::move(event));
    for (const DialogEvent& event : events) {
      ASSERT_TRUE(std::holds_alternative<TextPiece>(event)) << text;
      shown += std::get<TextPiece>(event).text;
    }
    EXPECT_EQ(shown, text);
    AnswerReader again(form, kTools, false, true);
    again.push(call);
    EXPECT_GE(again.calls(), 1u);
  }
}

// Ids that the grammar allows, at random, up to where it may end. What ends a text comes rarely by itself.
std::vector<int64_t> walk(Grammar& grammar, const std::string& text_end, std::mt19937& random) {
  std::vector<int64_t> answer;
  std::string forced;
  for (int step = 0; step < 3000; ++step) {
    const std::vector<int64_t> ids = testing::allowed_ids(grammar);
    if (ids.empty() || (grammar.may_end() && random() % 4 == 0)) return answer;
    if (forced.empty() && ids.size() > 150 && random() % 3 == 0) forced = text_end;
    int64_t id = ids[random() % ids.size()];
    if (!forced.empty()) {
      const int64_t next = static_cast<unsigned char>(forced[0]);
      forced.erase(0, 1);
      if (std::find(ids.begin(), ids.end(), next) != ids.end()) id = next;
    }
    answer.push_back(id);
    const Status status = grammar.append(id);
    EXPECT_TRUE(status.is_ok()) << status.message();
  }
  return {};
}

// Answers that the grammar allows, at random, are read as calls that the schema allows.
TEST_P(GrammarOfForms, RandomAnswersAreWholeCalls) {
  const FolderTokenizer tokenizer = testing::tokenizer_with(GetParam().chat_template);
  const Form& form = testing::form_of(GetParam().chat_template);
  const Grammar start =
      testing::compiled(tokenizer, GrammarKind::kAnswer, grammar_of(form, {ChoiceKind::kRequired, "", true}));
  std::mt19937 random(11);
  size_t calls = 0;
  const size_t walks = 20 / static_cast<size_t>(sweep_stride(5));
  for (size_t i = 0; i < walks; ++i) {
    Grammar grammar = std::move(start.fork()).value();
    const std::string end = form.calls.kind == CallForm::Kind::kTagged     ? form.calls.value_close
                            : form.calls.kind == CallForm::Kind::kLiterals ? form.calls.text_quote
                                                                           : "\"";
    const std::vector<int64_t> ids = walk(grammar, end, random);
    if (ids.empty()) continue;  // too long
    std::string text;
    for (const int64_t id : ids) text += *tokenizer.bytes_of(id);
    AnswerReader reader(form, kTools, false);
    std::vector<DialogEvent> events = reader.push(text);
    for (DialogEvent& event : reader.finish()) events.push_back(std::move(event));
    std::string json;
    size_t ended = 0;
    for (const DialogEvent& event : events) {
      if (std::holds_alternative<CallBegun>(event)) json.clear();
      if (const auto* piece = std::get_if<ArgumentsPiece>(&event)) json += piece->json;
      if (!std::holds_alternative<CallEnded>(event)) continue;
      ++ended;
      const Json value = Json::parse(json, nullptr, false);
      ASSERT_TRUE(value.is_object()) << json << "\n" << text;
      EXPECT_EQ(value.contains("city"), value.contains("unit")) << json;
      if (value.contains("unit")) {
        EXPECT_TRUE(value["city"].is_string() && (value["unit"] == "C" || value["unit"] == "F")) << json;
      }
      if (value.contains("days")) {
        EXPECT_TRUE(value["days"].is_number()) << json;
      }
      if (value.contains("exact")) {
        EXPECT_TRUE(value["exact"].is_boolean()) << json;
      }
    }
    EXPECT_EQ(ended, reader.calls()) << text;
    EXPECT_FALSE(reader.in_call()) << text;
    EXPECT_GT(ended, 0u) << text;
    calls += ended;
  }
  EXPECT_GE(calls, sweeping() ? 6u : 1u);
}

INSTANTIATE_TEST_SUITE_P(Forms, GrammarOfForms, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.what; });

TEST(CallGrammar, Reasoning) {
  const FolderTokenizer tokenizer = testing::tokenizer_with(testing::kQwen3Template);
  const Form form = find_form(tokenizer);
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const std::string lark = grammar_of(form, {ChoiceKind::kRequired, "", true});
  EXPECT_TRUE(taken(tokenizer, lark, "<think>\nhm <tool_call> hm\n</think>\n\n" + call).whole) << lark;
  EXPECT_TRUE(taken(tokenizer, lark, call).whole);
  EXPECT_FALSE(taken(tokenizer, lark, "<think>\nhm").whole);
  EXPECT_TRUE(taken(tokenizer, grammar_of(form, {}), "<think>\nhm <tool_call> hm\n</think>\n\nHello").whole)
      << grammar_of(form, {});
  EXPECT_TRUE(taken(tokenizer, grammar_of(form, {}, true), "hm\n</think>\n\n" + call).whole);
  const std::string json = grammar_behind_reasoning(form, "%json {\"type\": \"integer\"}", true);
  EXPECT_TRUE(taken(tokenizer, json, "hm 1\n</think>\n\n12").whole) << json;
  EXPECT_FALSE(taken(tokenizer, json, "12").whole);
  const std::string either = grammar_of(form, {}, true, "%json {\"type\": \"integer\"}");
  EXPECT_TRUE(taken(tokenizer, either, "hm 1\n</think>\n\n12").whole) << either;
  EXPECT_TRUE(taken(tokenizer, either, "hm <tool_call>\n</think>\n\n" + call).whole) << either;
  EXPECT_FALSE(taken(tokenizer, either, "hm\n</think>\n\nSo: " + call).whole);
  const std::string own = "%lark {\nstart: \"}\" ITEM?\nITEM: /[0-9]+/ // }\n}";
  EXPECT_TRUE(taken(tokenizer, grammar_behind_reasoning(form, own, true), "hm 1\n</think>\n\n}12").whole);
}

// White space before the mark of the reasoning, be that text or a token; and JSON that is no call.
TEST(CallGrammar, WhatMayBeginAnAnswer) {
  const FolderTokenizer tokenizer = testing::tokenizer_with(testing::kQwen3Template);
  const Form form = find_form(tokenizer);
  for (const char* space : {"", "\n", "\n\n"}) {
    EXPECT_TRUE(taken(tokenizer, grammar_of(form, {}), space + std::string("<think>hm</think>\nHello")).whole);
    const std::string json = grammar_behind_reasoning(form, "%json {\"type\": \"integer\"}", false);
    EXPECT_TRUE(taken(tokenizer, json, space + std::string("<think>hm</think>\n12")).whole) << json;
    EXPECT_FALSE(taken(tokenizer, json, space + std::string("<think>hm")).whole);
  }
  const FolderTokenizer lists = testing::tokenizer_with(testing::kMistralTemplate);
  EXPECT_TRUE(taken(lists, grammar_of(find_form(lists), {}),
                    "[TOOL_CALLS] [\n    {\"name\": \"now\", \"arguments\": {}, \"id\": \"abcdefgh1\"},\n    "
                    "{\"name\": \"now\", \"arguments\": {}, \"id\": \"abcdefgh2\"}\n]")
                  .whole);
  const FolderTokenizer bare = testing::tokenizer_with(testing::kLlama3Template);
  const std::string lark = grammar_of(find_form(bare), {ChoiceKind::kAuto, "", false});
  EXPECT_TRUE(taken(bare, lark, R"({"a": 1})").whole) << lark;
  EXPECT_TRUE(taken(bare, lark, R"({"name": "now", "parameters": {}})").whole) << lark;
  EXPECT_FALSE(taken(bare, lark, R"({"name": "now", "sure": true})").whole) << lark;
  EXPECT_FALSE(taken(bare, lark, R"({"name": "rain", "parameters": {}})").whole) << lark;
  EXPECT_FALSE(taken(bare, grammar_of(find_form(bare), {ChoiceKind::kRequired, "", false}), R"({"a": 1})").whole);
}

// References of a tool's schema, in an object that is a call.
TEST(CallGrammar, SchemaOfACallWithReferences) {
  const FolderTokenizer tokenizer = testing::tokenizer_with(testing::kLlama3Template);
  const std::vector<Tool> tools = {
      {"tree", "", R"({"type": "object", "properties": {"left": {"$ref": "#"}, "leaf": {"$ref": "#/$defs/leaf"}},
    "additionalProperties": false, "$defs": {"leaf": {"type": "integer"}}})"}};
  const auto lark = call_grammar(find_form(tokenizer), tools, {}, false, nullptr, "%json {\"type\": \"object\"}");
  ASSERT_TRUE(lark.is_ok());
  Grammar grammar = testing::compiled(tokenizer, GrammarKind::kAnswer, *lark);
  EXPECT_TRUE(taken(tokenizer, *lark, R"({"name": "tree", "parameters": {"left": {"leaf": 1}, "leaf": 2}})").whole)
      << *lark;
}

// A value ends where readers see its end, also within a line.
TEST(CallGrammar, TheMarkBehindATaggedValueIsNotInIt) {
  const FolderTokenizer tokenizer = testing::tokenizer_with(testing::chat_template(testing::kQwenCoderCalls));
  const Form form = find_form(tokenizer);
  const std::string lark = grammar_of(form, {ChoiceKind::kNamed, "weather", true});
  const std::string begun = "<tool_call>\n<function=weather>\n<parameter=city>\nOslo</parameter>";
  const std::string rest = "\n<parameter=unit>\nC\n</parameter>\n</function>\n</tool_call>";
  EXPECT_TRUE(taken(tokenizer, lark, begun + rest).whole) << lark;
  EXPECT_EQ(taken(tokenizer, lark, begun + " and more\n</parameter>" + rest).bytes, begun.size());
}

// Marks that are tokens of the model: their ids, and not their bytes.
TEST(CallGrammar, MarksThatAreSpecialTokens) {
  testing::TempFolder folder;
  nlohmann::json model = testing::byte_level_tokenizer();
  model["model"]["vocab"]["[TOOL_CALLS]"] = 261;
  model["added_tokens"].push_back(testing::special(261, "[TOOL_CALLS]"));
  folder.write("tokenizer.json", model.dump());
  folder.write("tokenizer_config.json",
               Json({{"chat_template", testing::kMistralTemplate}, {"bos_token", "<s>"}}).dump());
  const FolderTokenizer tokenizer = std::move(FolderTokenizer::load(folder.path()).value());
  const Form form = find_form(tokenizer);
  const std::string call = R"( [{"name": "now", "arguments": {}, "id": "abcdefgh1"}])";
  for (const bool required : {false, true}) {
    const auto lark = call_grammar(form, kTools, {required ? ChoiceKind::kRequired : ChoiceKind::kAuto, "", true},
                                   false, special_tokens_of(tokenizer));
    ASSERT_TRUE(lark.is_ok());
    Grammar grammar = testing::compiled(tokenizer, GrammarKind::kAnswer, *lark);
    const auto append = [&](const std::string& text) {
      for (const char byte : text) {
        const Status status = grammar.append(static_cast<unsigned char>(byte));
        ASSERT_TRUE(status.is_ok()) << status.message() << " in " << text << "\n" << *lark;
      }
    };
    if (!required) append("Let me look.");
    for (int again = 0; again < 2; ++again) {
      const std::vector<int64_t> ids = testing::allowed_ids(grammar);
      EXPECT_EQ(std::count(ids.begin(), ids.end(), 261), 1) << *lark;
      EXPECT_EQ(std::count(ids.begin(), ids.end(), 258), 0);
      ASSERT_TRUE(grammar.append(261).is_ok());
      append(call);
      EXPECT_TRUE(grammar.may_end());
      if (again == 0) {
        ASSERT_TRUE(grammar.rewind(static_cast<int64_t>(call.size()) + 1).is_ok());
      }
    }
  }
  EXPECT_FALSE(Grammar::compile(tokenizer, GrammarKind::kLark, "start: <[261]>", tokenizer.vocab_size()).is_ok());
}

// One tool with these parameters.
Result<std::string> grammar_with(const std::string& chat, const std::string& parameters) {
  const std::vector<Tool> tools = {{"f", "", parameters}};
  return call_grammar(testing::form_of(chat), tools, {ChoiceKind::kRequired, "", true}, false);
}

const std::string kTagged = testing::chat_template(testing::kQwenCoderCalls),
                  kInPython = testing::chat_template(testing::python_calls("<calls>", ", ", "</calls>")),
                  kInBraces = testing::chat_template(testing::kLiteralCalls);

std::string tagged_call(const std::string& value) {
  return "<tool_call>\n<function=f>\n<parameter=s>\n" + value + "\n</parameter>\n</function>\n</tool_call>";
}

// Parts that refer to themselves, each in several ways: the work is that of the schema's size.
TEST(CallGrammar, SchemasThatReferToThemselves) {
  std::string many;
  for (int i = 0; i < 40; ++i)
    many += (i ? "," : "") + std::string("\"c") + std::to_string(i) + R"(":{"$ref":"#/$defs/N"})";
  const std::string schemas[] = {
      R"({"type": "object", "properties": {"s": {"$ref": "#/$defs/V"}}, "$defs": {"V": {"anyOf": [
          {"$ref": "#/$defs/V"}, {"$ref": "#/$defs/V"}, {"type": "string"}]}}})",
      R"({"type": "object", "properties": {"s": {"$ref": "#/$defs/N"}}, "$defs": {"N": {"type": "object", "properties": {)" +
          many + "}}}}"};
  for (const std::string& chat : {kTagged, kInPython, kInBraces}) {
    for (const std::string& schema : schemas) {
      const auto lark = grammar_with(chat, schema);
      ASSERT_TRUE(lark.is_ok()) << lark.status().message();
      EXPECT_LT(lark->size(), 40'000u);
    }
  }
  const FolderTokenizer tokenizer = testing::tokenizer_with(kInBraces);
  const std::string call = "<start_function_call>call:f{s:{c1:{c0:{},c2:{}}}}<end_function_call>";
  const auto lark = grammar_with(kInBraces, schemas[1]);
  EXPECT_TRUE(taken(tokenizer, *lark, call).whole) << taken(tokenizer, *lark, call).bytes << *lark;
}

// A value is what the schema allows, or it is not taken; texts stand raw where nothing but the mark restricts them.
TEST(CallGrammar, ValuesBetweenTags) {
  const FolderTokenizer tokenizer = testing::tokenizer_with(kTagged);
  const Form form = find_form(tokenizer);
  struct Value {
    std::string schema, written, json;  // json "": not taken
  };
  const Value values[] = {
      {R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", "Oslo \"x\"", R"("Oslo \"x\"")"},
      {R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", "null", "null"},
      {R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", "12", R"("12")"},
      {R"({})", "a b", R"("a b")"},
      {R"({})", "[1, 2]", "[1,2]"},
      {R"({"type": ["string", "null"], "enum": ["x", "y", null]})", "x", R"("x")"},
      {R"({"type": ["string", "null"], "enum": ["x", "y", null]})", "null", "null"},
      {R"({"type": ["string", "null"], "enum": ["x", "y", null]})", "z", ""},
      {R"({"anyOf": [{"const": "x"}, {"const": "y"}]})", "abc", ""},
      {R"({"anyOf": [{"const": "x"}, {"const": "y"}]})", "y", R"("y")"},
      {R"({"allOf": [{"enum": ["x", "y"]}]})", "abc", ""},
      {R"({"type": "string", "minLength": 5})", "\"abc\"", ""},
      {R"({"type": "string", "minLength": 3})", "\"abc\"", R"("abc")"},
      {R"({"type": "string", "pattern": "^[0-9]+$"})", "abc", ""},
      {R"({"type": "string", "maxLength": 2})", "\"abc\"", ""},
      {R"({"type": "string", "format": "date"})", "\"abc\"", ""},
      {R"({"type": "array", "items": {"type": "string"}})", R"(["a</parameter>", "b"])", R"(["a</parameter>","b"])"},
      {R"({"$ref": "#/properties/t"})", "12", "12"},
  };
  for (const Value& v : values) {
    const std::string schema =
        R"({"type": "object", "required": ["s"], "properties": {"s": )" + v.schema + R"(, "t": {"type": "integer"}}})";
    const auto lark = grammar_with(kTagged, schema);
    ASSERT_TRUE(lark.is_ok()) << lark.status().message();
    const std::string call = tagged_call(v.written);
    EXPECT_EQ(taken(tokenizer, *lark, call).whole, !v.json.empty()) << v.schema << v.written << *lark;
    if (v.json.empty()) continue;
    const std::vector<Tool> tools = {{"f", "", schema}};
    AnswerReader reader(form, tools, false);
    std::string json;
    for (const DialogEvent& event : reader.push(call))
      if (const auto* piece = std::get_if<ArgumentsPiece>(&event)) json += piece->json;
    EXPECT_EQ(json, "{\"s\":" + v.json + "}") << v.schema;
  }
}

// References, parts and names that are not listed: the same as properties that are.
TEST(CallGrammar, PropertiesOfOtherParts) {
  const FolderTokenizer tokenizer = testing::tokenizer_with(kTagged);
  for (const std::string schema :
       {R"({"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"s": {"type": "string"}},
            "required": ["s"]}}})",
        R"({"allOf": [{"type": "object", "properties": {"s": {"type": "string"}}, "required": ["s"]}]})",
        R"({"type": "object", "additionalProperties": {"type": "string"}, "required": ["s"]})"}) {
    const auto lark = grammar_with(kTagged, schema);
    ASSERT_TRUE(lark.is_ok()) << lark.status().message();
    EXPECT_TRUE(taken(tokenizer, *lark, tagged_call("12")).whole) << *lark;
    EXPECT_FALSE(taken(tokenizer, *lark, "<tool_call>\n<function=f>\n</function>\n</tool_call>").whole) << *lark;
    AnswerReader reader(testing::form_of(kTagged), std::vector<Tool>{{"f", "", schema}}, false);
    std::string json;
    for (const DialogEvent& event : reader.push(tagged_call("12")))
      if (const auto* piece = std::get_if<ArgumentsPiece>(&event)) json += piece->json;
    EXPECT_EQ(json, R"({"s":"12"})") << schema;
  }
}

TEST(CallGrammar, SchemasThatAFormCannotWrite) {
  const std::string top[] = {R"({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})",
                             R"({"type": "object", "properties": {"a": {"type": "integer"}}, "minProperties": 1})",
                             R"({"type": "object", "patternProperties": {"^a": {"type": "integer"}}})",
                             R"({"type": "object", "not": {"required": ["a"]}})"};
  const char* words[] = {"anyOf", "minProperties", "patternProperties", "not"};
  for (const std::string& chat : {kTagged, kInPython}) {
    for (size_t i = 0; i < std::size(top); ++i) {
      const Status status = grammar_with(chat, top[i]).status();
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << top[i];
      EXPECT_NE(status.message().find("'" + std::string(words[i]) + "'"), std::string::npos) << status.message();
    }
  }
  for (const std::string& chat : {kTagged, kInPython, kInBraces, std::string(testing::kPlainTemplate)}) {
    const FolderTokenizer tokenizer = testing::tokenizer_with(chat);
    EXPECT_FALSE(grammar_with(chat, R"({"type": "integer"})").is_ok());
    for (const char* schema :
         {R"({"type": "object", "required": ["a"], "properties": {"a": false}})",
          R"({"required": ["a"], "additionalProperties": false})", R"({"properties": ["a"]})", R"({"required": "a"})",
          R"({"required": [1]})", R"({"additionalProperties": 3})",
          R"({"properties": {"a": {"type": "integer", "minimum": 3, "maximum": 2}}, "required": ["a"]})",
          R"({"properties": {"a": {"not": {"type": "string"}}}})",
          R"({"properties": {"a": {"type": "word"}}, "required": ["a"]})",
          R"({"properties": {"a": {"type": "string", "minLength": 3, "maxLength": 2}}, "required": ["a"]})",
          R"({"properties": {"a": {"$ref": "#/$defs/none"}}})", R"({"$ref": "#/none"})", R"({"$dynamicRef": "#a"})"}) {
      const Result<std::string> lark = grammar_with(chat, schema);
      EXPECT_FALSE(lark.is_ok() &&
                   Grammar::compile(tokenizer, GrammarKind::kAnswer, *lark, tokenizer.vocab_size()).is_ok())
          << chat << schema;
    }
  }
}

// Names of properties are read, or refused.
TEST(CallGrammar, NamesOfProperties) {
  for (const std::string name : {"$filter", "@type", "a b", "x-y", "\xC3\xA9"}) {
    const std::string schema =
        Json{{"type", "object"}, {"properties", {{name, {{"type", "string"}}}}}, {"required", {name}}}.dump();
    const auto python = grammar_with(kInPython, schema);
    EXPECT_EQ(python.is_ok(), name == "x-y" || name == "\xC3\xA9") << name;
    if (!python.is_ok()) {
      EXPECT_NE(python.status().message().find("\"" + name + "\""), std::string::npos);
    }
    const FolderTokenizer tokenizer = testing::tokenizer_with(kInBraces);
    const auto braces = grammar_with(kInBraces, schema);
    ASSERT_TRUE(braces.is_ok()) << name;
    const std::string call = name == "a b" ? R"({"a b": "v"})" : "{" + name + ":<escape>v<escape>}";
    const std::string answer = "<start_function_call>call:f" + call + "<end_function_call>";
    EXPECT_TRUE(taken(tokenizer, *braces, answer).whole) << answer << *braces;
    AnswerReader reader(testing::form_of(kInBraces), std::vector<Tool>{{"f", "", schema}}, false);
    std::string json;
    for (const DialogEvent& event : reader.push(answer))
      if (const auto* piece = std::get_if<ArgumentsPiece>(&event)) json += piece->json;
    EXPECT_EQ(Json::parse(json, nullptr, false), (Json{{name, "v"}})) << json;
  }
}

// A tool whose schema lists no properties takes any.
TEST(CallGrammar, ArgumentsThatAreNotListed) {
  const FolderTokenizer tokenizer = testing::tokenizer_with(kInPython);
  for (const std::string schema : {"", R"({"type": "object"})"}) {
    const auto lark = grammar_with(kInPython, schema);
    ASSERT_TRUE(lark.is_ok());
    EXPECT_TRUE(taken(tokenizer, *lark, R"(<calls>f(a="x", b=1)</calls>)").whole) << *lark;
    EXPECT_TRUE(taken(tokenizer, *lark, "<calls>f()</calls>").whole) << *lark;
  }
}

TEST(CallGrammar, NamesOfTools) {
  for (const char* name : {"get weather", "a:b", "mcp/x", "x$y", "w\xC3\xA9ther", ""})
    EXPECT_TRUE(fault_of_tool_name(name)) << name;
  EXPECT_FALSE(fault_of_tool_name("get_weather-2.0"));
  EXPECT_FALSE(fault_of_tool_name(std::string(128, 'a')));
  EXPECT_TRUE(fault_of_tool_name(std::string(129, 'a')));
}

TEST(CallGrammar, Errors) {
  Form form;
  EXPECT_EQ(call_grammar(form, kTools, {ChoiceKind::kNamed, "rain", true}, false).status().message(),
            "tool_choice names 'rain', which is none of the tools");
  EXPECT_EQ(call_grammar(form, {}, {}, false).status().message(), "there are no tools to call");
  EXPECT_EQ(call_grammar(form, std::vector<Tool>{{"f", "", "[]"}}, {}, false).status().message(),
            "the parameters of the tool 'f' are no JSON schema");
}

}  // namespace
}  // namespace situ
