#include "text/dialog/answer_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/sweep_for_tests.h"
#include "text/dialog/history.h"
#include "text/dialog/marks.h"
#include "text/dialog/renderings.h"
#include "text/dialog/test_templates.h"

namespace situ {
namespace {

using Json = nlohmann::ordered_json;

// What the events of an answer say, joined.
struct Read {
  std::string reasoning, text;
  struct Call {
    std::string name, json;
    bool ended = false;
    bool operator==(const Call&) const = default;
  };
  std::vector<Call> calls;
  bool operator==(const Read&) const = default;

  void add(const std::vector<DialogEvent>& events) {
    for (const DialogEvent& event : events) {
      if (const auto* piece = std::get_if<ReasoningPiece>(&event)) reasoning += piece->text;
      if (const auto* piece = std::get_if<TextPiece>(&event)) text += piece->text;
      if (const auto* begun = std::get_if<CallBegun>(&event)) {
        EXPECT_EQ(begun->index, calls.size());
        calls.push_back({begun->name, ""});
      }
      if (const auto* piece = std::get_if<ArgumentsPiece>(&event)) {
        EXPECT_EQ(piece->index + 1, calls.size());
        EXPECT_FALSE(calls[piece->index].ended);
        calls[piece->index].json += piece->json;
      }
      if (const auto* ended = std::get_if<CallEnded>(&event)) {
        EXPECT_EQ(ended->index + 1, calls.size());
        calls[ended->index].ended = true;
        EXPECT_TRUE(Json::parse(calls[ended->index].json, nullptr, false).is_object()) << calls[ended->index].json;
      }
    }
  }
};

std::ostream& operator<<(std::ostream& out, const Read& read) {
  out << "reasoning '" << read.reasoning << "' text '" << read.text << "'";
  for (const Read::Call& call : read.calls) out << " " << call.name << call.json << (call.ended ? "" : " ...");
  return out;
}

std::vector<Tool> weather_tools() {
  return {
      {"weather", "", R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}})"},
      {"now", "", ""}};
}

Read read_pieces(const Form& form, const std::vector<Tool>& tools, const std::vector<std::string_view>& pieces,
                 bool in_reasoning = false) {
  AnswerReader reader(form, tools, in_reasoning);
  Read read;
  for (const std::string_view piece : pieces) read.add(reader.push(piece));
  read.add(reader.finish());
  return read;
}

Read read_cut(const Form& form, const std::vector<Tool>& tools, std::string_view begun, bool in_reasoning) {
  AnswerReader reader(form, tools, in_reasoning);
  Read read;
  read.add(reader.push(begun));
  read.add(reader.finish(true));
  return read;
}

// An answer that was cut says the beginning of the whole one, white space at the ends of texts aside.
void check_cut(const Read& cut, const Read& whole) {
  EXPECT_TRUE(whole.reasoning.starts_with(trimmed_right(cut.reasoning))) << cut << "\n" << whole;
  EXPECT_TRUE(whole.text.starts_with(trimmed_right(cut.text))) << cut << "\n" << whole;
  ASSERT_LE(cut.calls.size(), whole.calls.size()) << cut << "\n" << whole;
  for (size_t i = 0; i < cut.calls.size(); ++i) {
    EXPECT_EQ(cut.calls[i].name, whole.calls[i].name) << cut;
    EXPECT_TRUE(whole.calls[i].json.starts_with(cut.calls[i].json)) << cut << "\n" << whole;
  }
}

// The same whole, in two parts at every byte, and byte by byte; cut at every byte, the calls that ended are the same.
// `stride`: at one byte in so many, of which `first` is one.
Read read_answer(const Form& form, const std::vector<Tool>& tools, std::string_view text, bool in_reasoning = false,
                 size_t stride = 1, size_t first = 0) {
  const Read whole = read_pieces(form, tools, {text}, in_reasoning);
  std::vector<std::string_view> bytes;
  for (size_t cut = 0; cut < text.size(); ++cut) {
    bytes.push_back(text.substr(cut, 1));
    if (cut % stride != first % stride) continue;
    const Read parts = read_pieces(form, tools, {text.substr(0, cut), text.substr(cut)}, in_reasoning);
    EXPECT_EQ(parts, whole) << "cut at " << cut << " of " << text;
    const Read begun = read_pieces(form, tools, {text.substr(0, cut)}, in_reasoning);
    size_t ended = 0;
    for (; ended < begun.calls.size() && begun.calls[ended].ended; ++ended)
      EXPECT_TRUE(ended < whole.calls.size() && begun.calls[ended] == whole.calls[ended])
          << "cut at " << cut << " of " << text;
    EXPECT_LE(begun.calls.size(), ended + 1) << text;
    check_cut(read_cut(form, tools, text.substr(0, cut), in_reasoning), whole);
    if (::testing::Test::HasFailure()) return whole;
  }
  EXPECT_EQ(read_pieces(form, tools, bytes, in_reasoning), whole) << text;
  return whole;
}

Form documented() {
  Form form;
  form.calls = documented_calls();
  form.reasoning.open = "<think>\n", form.reasoning.close = "\n</think>\n\n";
  return form;
}

TEST(AnswerReader, TextReasoningAndCalls) {
  const std::vector<Tool> tools = weather_tools();
  Read read = read_answer(
      documented(), tools,
      "<think>\nhm <tool\n</think>\n\nLet me look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
      "\"Oslo \xC3\xA9\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n");
  EXPECT_EQ(read, (Read{"hm <tool",
                        "Let me look.",
                        {{"weather", "{\"city\":\"Oslo \xC3\xA9\",\"days\":2}", true}, {"now", "{}", true}}}))
      << read;
  EXPECT_EQ(read_answer(documented(), tools, "a <b> </think> \n"), (Read{"", "a <b> </think> \n", {}}));
  EXPECT_EQ(read_answer(documented(), {}, "<tool_call>{}</tool_call>"), (Read{"", "<tool_call>{}</tool_call>", {}}));
  // The prompt opened the reasoning; it is cut.
  EXPECT_EQ(read_answer(documented(), tools, "one\ntwo", true), (Read{"one\ntwo", "", {}}));
  EXPECT_EQ(read_answer(documented(), tools, "one\n</think>\n\nHello", true), (Read{"one", "Hello", {}}));
  EXPECT_EQ(read_answer(documented(), tools, "</think>\nHello"), (Read{"", "Hello", {}}));
}

TEST(AnswerReader, WhatIsCutBeforeTheNameOfACallIsLeftOut) {
  const std::vector<Tool> tools = weather_tools();
  const std::string_view answer =
      "<think>hm</think>So.\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n<tool_call>\n{\"name\": \"weather\", ";
  const std::string_view mark = "<tool_call>";
  for (size_t cut = 0; cut < answer.size(); ++cut) {
    AnswerReader reader(documented(), tools, false);
    Read read;
    read.add(reader.push(answer.substr(0, cut)));
    const bool before = reader.calls() == 0;
    read.add(reader.finish(true));
    EXPECT_TRUE(std::string_view("hm").starts_with(read.reasoning)) << cut;
    const bool whole = cut >= answer.find(mark) + mark.size();
    if (whole || !before) EXPECT_EQ(read.text, "So.") << cut;
  }
}

TEST(AnswerReader, KeysInAnyOrderAndArgumentsAsText) {
  const std::vector<Tool> tools = weather_tools();
  const Read expected{"", "", {{"weather", R"({"city":"Oslo"})", true}}};
  for (const char* body :
       {R"({"arguments": {"city": "Oslo"}, "name": "weather"})",
        R"({"id": "x", "parameters": {"city": "Oslo"}, "name": "weather", "more": [1, {"a": 2.5}, null]})",
        R"({"name": "weather", "arguments": "{\"city\": \"Oslo\"}"})",
        R"({"type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}})"})
    EXPECT_EQ(read_answer(documented(), tools, "<tool_call>" + std::string(body) + "</tool_call>"), expected) << body;
  EXPECT_EQ(read_answer(documented(), tools, R"(<tool_call>{"name": "now", "arguments": null}</tool_call>)"),
            (Read{"", "", {{"now", "{}", true}}}));
}

TEST(AnswerReader, EscapesAreWholeCharacters) {
  const auto call = [](const std::string& city) {
    return R"(<tool_call>{"name": "weather", "arguments": {"city": ")" + city + R"("}}</tool_call>)";
  };
  for (const auto& [city, json] : {std::pair{R"(\ud83d\ude42)", R"(\ud83d\ude42)"},
                                   {R"(\ud83d!)", R"(\ufffd!)"},
                                   {R"(\ude42\n)", R"(\ufffd\n)"},
                                   {R"(\ud83d\ud83d\ude42)", R"(\ufffd\ud83d\ude42)"},
                                   {"a\tb", R"(a\tb)"}})
    EXPECT_EQ(read_answer(documented(), weather_tools(), call(city)),
              (Read{"", "", {{"weather", R"({"city":")" + std::string(json) + "\"}", true}}}))
        << city;
}

TEST(AnswerReader, WhatIsNoCallIsText) {
  const std::vector<Tool> tools = weather_tools();
  for (const char* text : {"Write <tool_call> and then JSON.", "<tool_call>{\"city\": 1}</tool_call> x", "<tool_call>",
                           "<tool_call", "<tool_call>{\"name\": 3}", "<<tool_call><"})
    EXPECT_EQ(read_answer(documented(), tools, text), (Read{"", text, {}})) << text;
}

TEST(AnswerReader, TheEndOfACallThatTheLastTokenCutsIsNoText) {
  const std::string call = R"(<tool_call>{"name": "now", "arguments": {}})";
  for (const char* end : {"", "\n</tool", "</tool_call>", "</tool_call>\n"})
    EXPECT_EQ(read_answer(documented(), weather_tools(), call + end), (Read{"", "", {{"now", "{}", true}}})) << end;
}

TEST(AnswerReader, ABrokenCallDoesNotEnd) {
  const Read read = read_answer(documented(), weather_tools(),
                                R"(<tool_call>{"name": "weather", "arguments": {"city": oops}}</tool_call> So.)");
  EXPECT_EQ(read, (Read{"", "So.", {{"weather", R"({"city":)", false}}})) << read;
}

TEST(AnswerReader, CallsWithoutAMark) {
  const Form& form = testing::form_of(testing::kLlama3Template);
  const std::vector<Tool> tools = weather_tools();
  EXPECT_EQ(read_answer(form, tools, R"({"name": "weather", "parameters": {"city": "Oslo"}})"),
            (Read{"", "", {{"weather", R"({"city":"Oslo"})", true}}}));
  EXPECT_EQ(read_answer(form, tools, R"({"type": "function", "name": "weather", "parameters": {}})"),
            (Read{"", "", {{"weather", "{}", true}}}));
  for (const char* text : {R"({"city": "Oslo", "name": "weather"})", R"({"name": "rain", "parameters": {}})",
                           R"(See {"name": "weather", "parameters": {}})", "{}", "{"})
    EXPECT_EQ(read_answer(form, tools, text), (Read{"", text, {}})) << text;
}

TEST(AnswerReader, Channels) {
  const Form& form = testing::form_of(testing::kChannelTemplate);
  const std::vector<Tool> tools = weather_tools();
  const Read read =
      read_answer(form, tools,
                  "<|channel|>analysis<|message|>need data<|end|><|start|>assistant<|channel|>commentary<|message|>Let "
                  "me look.<|end|><|start|>assistant to=functions.weather<|channel|>commentary "
                  "<|constrain|>json<|message|>{\"city\":\"Oslo\"}<|call|>");
  EXPECT_EQ(read, (Read{"need data", "Let me look.", {{"weather", R"({"city":"Oslo"})", true}}})) << read;
  EXPECT_EQ(read_answer(form, tools, " to=functions.now<|channel|>commentary json<|message|>{}"),
            (Read{"", "", {{"now", "{}", true}}}));
  EXPECT_EQ(read_answer(form, tools, "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"),
            (Read{"", "", {{"now", "{}", true}}}));
  EXPECT_EQ(read_answer(form, tools, "<|channel|>final<|message|>a < b<|return|>"), (Read{"", "a < b", {}}));
}

// The types of a tool's schema decide; without one, what reads as JSON is JSON.
TEST(AnswerReader, TagsWithTypes) {
  const Form& form = testing::form_of(testing::chat_template(testing::kQwenCoderCalls));
  const auto call = [](const std::string& parameters) {
    return "<tool_call>\n<function=weather>\n" + parameters + "</function>\n</tool_call>";
  };
  const auto parameter = [](const std::string& key, const std::string& value) {
    return "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  };
  for (const auto& [key, value, json] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"city", "12", R"({"city":"12"})"},
           {"days", "12", R"({"days":12})"},
           {"days", "twelve", R"({"days":"twelve"})"},
           {"other", "True", R"({"other":true})"},
           {"other", "a\n \"b\"\n", R"({"other":"a\n \"b\"\n"})"},
           {"city", "\n<x>\n\n", R"({"city":"\n<x>\n\n"})"}})
    EXPECT_EQ(read_answer(form, weather_tools(), call(parameter(key, value))),
              (Read{"", "", {{"weather", json, true}}}))
        << value;
  EXPECT_EQ(read_answer(form, weather_tools(), call("")), (Read{"", "", {{"weather", "{}", true}}}));
}

// -- conversations at random

class Random {
 public:
  explicit Random(unsigned seed) : random_(seed) {}
  size_t below(size_t n) { return random_() % n; }
  std::string text(size_t most) {
    static const std::vector<std::string> kParts = {"a",
                                                    "Oslo",
                                                    " ",
                                                    "\n",
                                                    "\"",
                                                    "\\",
                                                    "{",
                                                    "}",
                                                    "[",
                                                    "]",
                                                    "<",
                                                    "</",
                                                    "'",
                                                    ":",
                                                    ",",
                                                    "\xC3\xA9",
                                                    "\xF0\x9F\x99\x82",
                                                    "12",
                                                    "=",
                                                    "(",
                                                    ")",
                                                    "|",
                                                    "`"};
    std::string text;
    for (size_t i = below(most + 1); i > 0; --i) text += kParts[below(kParts.size())];
    return text;
  }
  // Between two letters: a template may strip it.
  std::string words(size_t most) { return "x" + text(most) + "y"; }

 private:
  std::mt19937 random_;
};

Json random_arguments(Random& random) {
  Json arguments = Json::object();
  if (random.below(3) > 0) arguments["text"] = random.text(12);
  if (random.below(2) > 0) arguments["count"] = static_cast<int>(random.below(1000)) - 500;
  if (random.below(2) > 0) arguments["flag"] = random.below(2) == 0;
  if (random.below(2) > 0) {
    arguments["list"] = Json::array();
    for (size_t i = random.below(4); i > 0; --i) arguments["list"].push_back(random.words(3));
  }
  if (random.below(3) == 0) arguments["map"] = {{"a", 2.5}};
  return arguments;
}

struct Kind {
  std::string what, chat_template;
};

const Kind kKinds[] = {
    {"documented", testing::kPlainTemplate},
    {"hermes", testing::chat_template(testing::kHermesCalls)},
    {"qwen3", testing::kQwen3Template},
    {"llama3", testing::kLlama3Template},
    {"mistral", testing::kMistralTemplate},
    {"apertus", testing::chat_template(testing::kApertusCalls)},
    {"wrapped", testing::chat_template(testing::kWrappedCalls)},
    {"small32", testing::chat_template(testing::kSmall32Calls)},
    {"deepseek", testing::chat_template(testing::kDeepSeekCalls)},
    {"kimi", testing::chat_template(testing::kKimiCalls)},
    {"coder", testing::chat_template(testing::kQwenCoderCalls)},
    {"glm", testing::chat_template(testing::kGlmCalls)},
    {"minimax", testing::chat_template(testing::kMiniMax2Calls)},
    {"llama4", testing::chat_template(testing::python_calls("[", ", ", "]"))},
    {"olmo3", testing::chat_template(testing::python_calls("<function_calls>", "\\n", "</function_calls>"))},
    {"channels", testing::kChannelTemplate},
    {"literals", testing::chat_template(testing::kLiteralCalls)},
};

// An answer of a conversation, as the template renders it: what stands behind the prompt, and not behind another
// answer.
std::string rendered_answer(const FolderTokenizer& tokenizer, const Form& form, const std::vector<Tool>& tools,
                            const Json& answer) {
  const auto render = [&](const Json* turn) {
    Json messages = Json::array({Json({{"role", "user"}, {"content", "zq"}})}), variables = Json::object();
    if (turn) messages.push_back(*turn);
    fit_history(form, tools, messages, variables);
    const auto text = tokenizer.apply_chat_template(messages.dump(), !turn, variables.dump());
    EXPECT_TRUE(text.is_ok()) << text.status().message();
    return text.is_ok() ? *text : "";
  };
  const Json other = {{"role", "assistant"}, {"content", "~~~"}};
  const std::string prompt = render(nullptr), text = render(&other), with = render(&answer);
  EXPECT_TRUE(with.starts_with(prompt));
  return with.substr(prompt.size(), with.size() - prompt.size() - probe::common(with, text).behind);
}

class AnswersOfForms : public ::testing::TestWithParam<Kind> {};

TEST_P(AnswersOfForms, ReadAsTheyWereRenderedHoweverTheyAreCut) {
  const FolderTokenizer tokenizer = testing::tokenizer_with(GetParam().chat_template);
  const Form& form = testing::form_of(GetParam().chat_template);
  const std::vector<Tool> tools = probe::tools();
  const bool drops_text = std::count(form.dropped.begin(), form.dropped.end(), "the text beside a call") > 0;
  const unsigned conversations = sweeping() ? 20 : 5;
  for (unsigned seed = 0; seed < conversations; ++seed) {
    Random random(seed);
    Json answer = {{"role", "assistant"},
                   {"content", !drops_text && !form.calls.bare() && random.below(2) > 0 ? random.words(6) : ""}};
    Read expected{"", answer["content"].get<std::string>(), {}};
    if (form.reasoning.field == "reasoning_content") answer["reasoning_content"] = expected.reasoning = random.words(8);
    for (size_t i = form.calls.several ? 1 + random.below(3) : 1; i > 0; --i) {
      const Json arguments = random_arguments(random);
      expected.calls.push_back({"zqcheck", arguments.dump(), true});
      const std::string id = "abcdefgh" + std::to_string(i);
      answer["tool_calls"].push_back(
          {{"id", id}, {"type", "function"}, {"function", {{"name", "zqcheck"}, {"arguments", arguments.dump()}}}});
    }
    const std::string text = rendered_answer(tokenizer, form, tools, answer);
    // Each conversation is cut at other bytes: together they are cut in every part of an answer.
    const Read read = read_answer(form, tools, text, false, static_cast<size_t>(sweep_stride(20)), 4 * seed);
    EXPECT_EQ(read, expected) << "seed " << seed << "\n" << text << "\n" << read << "\n" << expected;
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, AnswersOfForms, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return info.param.what; });

// A stop string, or an end, behind the mark of a call cuts the call.
TEST(AnswerReader, WhatCutsACall) {
  const std::vector<Tool> tools = weather_tools();
  const std::string call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const std::string answer = "Go.\n" + call + "\n" + call + "\n";
  const size_t first = answer.find('>') + 1, first_end = answer.find("}}") + 2,
               second = answer.find("<tool_call>", first) + 11, second_end = answer.rfind("}}") + 2;
  for (size_t size = 0; size <= answer.size(); ++size) {
    AnswerReader reader(documented(), tools, false);
    reader.push(answer.substr(0, size));
    const bool inside = (size > first && size < first_end) || (size > second && size < second_end);
    if (size != first && size != second) EXPECT_EQ(reader.cuts_call(), inside) << answer.substr(0, size);
  }
  Form channels;
  channels.calls.kind = CallForm::Kind::kChannels;
  AnswerReader header(channels, tools, false);
  header.push("<|channel|>commentary to=functions.no");
  EXPECT_TRUE(header.cuts_call());
}

// Where another text may stand in the place of a call without marks, an object is a call at its end.
TEST(AnswerReader, AnObjectIsACallIfAToolTakesIt) {
  const Form& form = testing::form_of(testing::kLlama3Template);
  const std::vector<Tool> tools = {
      {"weather", "", R"({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})"}};
  const auto read_first = [&](const std::string& text, bool cut = false) {
    AnswerReader reader(form, tools, false, true);
    Read read;
    for (const char byte : text) read.add(reader.push({&byte, 1}));
    read.add(reader.finish(cut));
    return read;
  };
  for (const char* text : {R"({"name": "weather", "temp": 5})", R"({"name": "weather", "parameters": {"days": 5}})",
                           R"({"name": "weather"})", R"({"name": "rain", "parameters": {"city": "Oslo"}})",
                           R"({"name": "weather", "parameters": {"city": "Oslo"}, "sure": true})"})
    EXPECT_EQ(read_first(text), (Read{"", text, {}})) << text;
  EXPECT_EQ(read_first(R"({"name": "weather", "parameters": {"city": "Oslo"}})"),
            (Read{"", "", {{"weather", R"({"city":"Oslo"})", true}}}));
  EXPECT_EQ(read_first(R"({"name": "weath)", true), (Read{"", R"({"name": "weath)", {}}));
}

// What an answer says that is cut behind each byte: nothing of a mark that has begun, in pieces as whole.
TEST(AnswerReader, NoPartOfAMarkIsShownWhereAnAnswerIsCut) {
  const std::vector<Tool> tools = weather_tools();
  const std::string called = "Go <b>.\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
  const std::string thought = "<think>\nif a < b\n</think>\n\n" + called;
  const auto cut_at = [&](const Form& form, const std::string& text, size_t size, bool in_reasoning) {
    AnswerReader whole(form, tools, in_reasoning), bytewise(form, tools, in_reasoning);
    Read read, pieces;
    read.add(whole.push(text.substr(0, size)));
    read.add(whole.finish(true));
    for (const char byte : text.substr(0, size)) pieces.add(bytewise.push({&byte, 1}));
    pieces.add(bytewise.finish(true));
    EXPECT_EQ(read, pieces) << text.substr(0, size);
    return read;
  };
  for (size_t size = 0; size <= thought.size(); ++size) {
    const Read read = cut_at(documented(), thought, size, false);
    EXPECT_FALSE(read.text.ends_with("<t") || read.text.find("<to") != std::string::npos) << read;
    EXPECT_EQ(read.text.find("think"), std::string::npos) << read;
    EXPECT_TRUE(std::string("if a < b").starts_with(read.reasoning)) << read;
  }
  EXPECT_EQ(cut_at(documented(), "a < ", 3, false), (Read{"", "a", {}}));  // nobody knows what it begins
  EXPECT_EQ(cut_at(documented(), "a < b", 5, false), (Read{"", "a < b", {}}));
  EXPECT_EQ(cut_at(documented(), "Well.\n<tool_ca", 14, false), (Read{"", "Well.", {}}));
  EXPECT_EQ(cut_at(documented(), "Well.\n<tool_cx", 14, false), (Read{"", "Well.\n<tool_cx", {}}));
  EXPECT_EQ(cut_at(documented(), "<thi", 4, false), (Read{}));
  EXPECT_EQ(cut_at(documented(), "a\n</th", 6, true), (Read{"a", "", {}}));
  EXPECT_EQ(cut_at(documented(), "a <", 3, true), (Read{"a", "", {}}));
  Form channels;
  channels.calls.kind = CallForm::Kind::kChannels;
  const std::string final_text =
      "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>It is.<|return|>";
  for (size_t size = 0; size <= final_text.size(); ++size) {
    const Read read = cut_at(channels, final_text, size, false);
    EXPECT_TRUE(std::string("hm").starts_with(read.reasoning)) << read;
    EXPECT_TRUE(std::string("It is.").starts_with(read.text)) << read;
  }
  // An answer that ends by itself has what it has.
  AnswerReader ended(documented(), tools, false);
  Read read;
  read.add(ended.push("Well. <tool_ca"));
  read.add(ended.finish());
  EXPECT_EQ(read, (Read{"", "Well. <tool_ca", {}}));
}
}  // namespace
}  // namespace situ
