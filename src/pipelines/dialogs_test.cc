// Calls of tools and reasoning as data, of models whose answers are forced by their weights.
#include "pipelines/dialogs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "onnx/test_model.h"
#include "requests/answer_text.h"
#include "situ/model.h"
#include "text/dialog/test_templates.h"

namespace situ {
namespace {

using Json = nlohmann::ordered_json;

const std::string kTools = R"([{"type": "function", "function": {"name": "weather", "description": "Of a city.",
  "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"],
                 "additionalProperties": false}}},
  {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": false}}])";

// A model that answers each conversation with these tokens. `special`: those that are special tokens.
Model forced(const std::string& chat_template, const std::vector<std::string>& pieces,
             const std::vector<std::string>& special = {}) {
  std::vector<std::string> tokens;
  for (int c = 33; c < 127; ++c) tokens.emplace_back(1, static_cast<char>(c));
  for (const char* space : {" ", "\n"}) tokens.emplace_back(space);  // of tokens that are alike the first one is chosen
  const size_t first = tokens.size();
  tokens.insert(tokens.end(), pieces.begin(), pieces.end());
  tokens.emplace_back("</s>");
  nlohmann::json vocabulary;
  for (size_t i = 0; i < tokens.size(); ++i) vocabulary[tokens[i]] = i;
  nlohmann::json tokenizer = testing::tokenizer_json(vocabulary, nlohmann::json::array());
  tokenizer["decoder"] = {{"type", "Fuse"}};
  for (size_t i = first; i < tokens.size(); ++i)
    if (i + 1 == tokens.size() || std::find(special.begin(), special.end(), tokens[i]) != special.end())
      tokenizer["added_tokens"].push_back(testing::special(static_cast<int>(i), tokens[i]));
  const size_t n = tokens.size();
  std::vector<float> table(n * n);
  for (size_t i = 0; i < first; ++i) table[i * n + first] = 9;
  for (size_t i = first; i + 1 < n; ++i) table[i * n + i + 1] = 9;
  const onnx::test::TempFolder folder;
  folder.write("model.onnx", onnx::test::table_model(table, static_cast<int64_t>(n)));
  std::ofstream(folder.path() / "tokenizer.json") << tokenizer.dump();
  std::ofstream(folder.path() / "tokenizer_config.json")
      << Json({{"chat_template", chat_template}, {"eos_token", "</s>"}}).dump();
  LoadOptions options;
  options.context_length = 4096;
  options.threads = 1;
  Result<Model> model = Model::load(folder.path().string(), options);
  EXPECT_TRUE(model.is_ok()) << model.status().message();
  return std::move(*model);
}

Prompt asked(const std::string& tools = "", const std::string& choice = "") {
  Prompt prompt(std::vector<Message>{Message::of_text("user", "Oslo?")});
  prompt.chat.tools_json = tools;
  prompt.chat.tool_choice = choice;
  return prompt;
}

GenerateOptions at_most(int64_t most) {
  GenerateOptions options;
  options.max_new_tokens = most;
  return options;
}

// What its events say together is what the answer says.
Generation answer(const Model& model, const Prompt& prompt, const GenerateOptions& options) {
  Said said;
  const Generation g = model
                           .generate(prompt, options,
                                     [&](const Event& event) {
                                       EXPECT_TRUE(event.is_shown());
                                       said.add(event);
                                       return true;
                                     })
                           .value();
  Result<Ticket> ticket = model.submit({prompt, options});
  EXPECT_EQ(ticket->result()->output_ids, g.output_ids);  // whoever waits for it
  EXPECT_EQ(said.text, g.text);
  EXPECT_EQ(said.reasoning, g.reasoning);
  const std::vector<ToolCall> calls = said.take_calls();
  EXPECT_EQ(calls.size(), g.tool_calls.size());
  for (size_t i = 0; i < std::min(calls.size(), g.tool_calls.size()); ++i) {
    EXPECT_EQ(calls[i].id, g.tool_calls[i].id);
    EXPECT_EQ(calls[i].name, g.tool_calls[i].name);
    EXPECT_EQ(calls[i].arguments_json, g.tool_calls[i].arguments_json);
  }
  return g;
}

const std::vector<std::string> kThoughtAndCall = {
    "<think>",   "\nA cold",    " city.",        "\n</think>\n\n", "Let me",
    " look.\n",  "<tool_call>", "\n{\"name\": ", "\"weather\", ",  "\"arguments\": {\"city\": ",
    "\"Oslo\"}", "}\n",         "</tool_call>"};

TEST(Dialogs, ReasoningAndCallsOfAnAnswer) {
  for (const std::vector<std::string>& special :
       {std::vector<std::string>(), {"<think>", "<tool_call>", "</tool_call>"}}) {
    const Model model = forced(testing::kQwen3Template, kThoughtAndCall, special);
    const Generation g = answer(model, asked(kTools), at_most(100));
    EXPECT_EQ(g.reasoning, "A cold city.");
    EXPECT_EQ(g.text, "Let me look.");
    ASSERT_EQ(g.tool_calls.size(), 1u);
    EXPECT_EQ(g.tool_calls[0].name, "weather");
    EXPECT_EQ(Json::parse(g.tool_calls[0].arguments_json), Json({{"city", "Oslo"}}));
    EXPECT_TRUE(g.tool_calls[0].id.starts_with("call_") && g.tool_calls[0].id.size() == 37) << g.tool_calls[0].id;
    EXPECT_EQ(g.finish_reason, FinishReason::kStop);
    EXPECT_EQ(g.output_ids.size(), kThoughtAndCall.size());
    EXPECT_TRUE(g.notes.empty());
    // Cut behind each token: nothing but the beginning of this, and no part of a call.
    for (int64_t most = 1; most < std::ssize(kThoughtAndCall); ++most) {
      const Generation cut = answer(model, asked(kTools), at_most(most));
      EXPECT_TRUE(g.reasoning.starts_with(cut.reasoning)) << cut.reasoning;
      EXPECT_TRUE((g.text + "\n").starts_with(cut.text)) << cut.text;
      EXPECT_EQ(cut.finish_reason, FinishReason::kLength);
      EXPECT_LE(cut.tool_calls.size(), most > 10 ? 1u : 0u);
    }
    // Without tools calls are text.
    const Generation plain = answer(model, asked(), at_most(100));
    EXPECT_EQ(plain.reasoning, "A cold city.");
    EXPECT_TRUE(plain.tool_calls.empty());
    EXPECT_TRUE(plain.text.starts_with("Let me look.")) << plain.text;
    // A prompt of ids is answered with text.
    const std::vector<int64_t> ids = model.tokenizer().encode(asked().messages).value();
    EXPECT_TRUE(answer(model, Prompt(ids), at_most(100)).reasoning.empty());
  }
}

// Streams tell them in the order of the answer, also where one token has several.
TEST(Dialogs, ATokenThatSaysTextAndThenReasoning) {
  const Model model = forced(testing::kChannelTemplate, {"<|channel|>commentary<|message|>", "Let",
                                                         " me.<|end|><|start|>assistant<|channel|>"
                                                         "analysis<|message|>hm",
                                                         "<|end|><|start|>assistant<|channel|>final<|message|>So."});
  std::vector<std::string> said;
  GenerateOptions options = at_most(100);
  options.logprobs = 0;
  const Result<Generation> answered =
      model.generate(asked(R"([{"type": "function", "function": {"name": "now"}}])"), options, [&](const Event& event) {
        if (!event.text.empty()) said.push_back("text: " + event.text);
        if (!event.reasoning.empty()) said.push_back("reasoning: " + event.reasoning);
        EXPECT_EQ(event.id >= 0, event.logprob.has_value());
        EXPECT_TRUE(event.text.empty() || event.reasoning.empty());
        return true;
      });
  ASSERT_TRUE(answered.is_ok()) << answered.status().message();
  const Generation& g = *answered;
  EXPECT_EQ(said, (std::vector<std::string>{"text: Let", "text:  me.", "reasoning: hm", "text: So."}));
  EXPECT_EQ(g.text, "Let me.So.");
  EXPECT_EQ(g.reasoning, "hm");
  EXPECT_EQ(g.reasoning_tokens, 2);
  EXPECT_EQ(g.output_ids.size(), 4u);
}

TEST(Dialogs, ReasoningIsCountedAndTheStopStringNamed) {
  const Model model = forced(testing::kQwen3Template, kThoughtAndCall);
  GenerateOptions options = at_most(100);
  options.stop = {"city", "never", "look", "ook"};
  Generation g = answer(model, asked(), options);
  EXPECT_EQ(g.finish_reason, FinishReason::kStopString);
  EXPECT_EQ(g.stop_string, "city");
  EXPECT_EQ(g.reasoning, "A cold ");
  EXPECT_EQ(g.reasoning_tokens, 3);
  options.stop.erase(options.stop.begin());
  g = answer(model, asked(), options);
  EXPECT_EQ(g.stop_string, "look");
  EXPECT_EQ(g.text, "Let me ");
  EXPECT_EQ(g.reasoning_tokens, 4);
  options = at_most(100);
  options.choices = 2;
  g = model.generate(asked(kTools), options, nullptr).value();
  ASSERT_EQ(g.answers.size(), 2u);
  for (const Generation::Answer& one : g.answers) {
    EXPECT_EQ(one.reasoning_tokens, 4);
    EXPECT_EQ(one.stop_string, "");
    ASSERT_EQ(one.tool_calls.size(), 1u);
  }
  // A search tells them apart too.
  options = at_most(10);
  options.beams = options.num_return = 2;
  g = answer(model, asked(), options);
  ASSERT_EQ(g.answers.size(), 2u);
  EXPECT_EQ(g.reasoning, "A cold city.");
  EXPECT_EQ(g.answers[0].reasoning, g.reasoning);
  EXPECT_EQ(g.reasoning_tokens, 4);
  EXPECT_TRUE(g.text.starts_with("Let me look.")) << g.text;
}

TEST(Dialogs, ACallbackThatEndsAnAnswerHasWhatCameBefore) {
  const Model model = forced(testing::kQwen3Template, kThoughtAndCall);
  int events = 0;
  const Generation g = model.generate(asked(kTools), at_most(100), [&](const Event&) { return ++events < 5; }).value();
  EXPECT_EQ(g.finish_reason, FinishReason::kCallback);
  EXPECT_EQ(g.reasoning, "A cold city.");
  EXPECT_TRUE(std::string("Let me look.").starts_with(g.text)) << g.text;
  EXPECT_TRUE(g.tool_calls.empty());
}

// What the options ask for stands behind the reasoning, or a call in its place.
TEST(Dialogs, WhatAnAnswerMustBeStandsBehindTheReasoning) {
  const std::vector<std::string> json = {"<think>", "\n{1}", "\n</think>\n\n", "{\"", "yes", "\": ", "true", "}"};
  const Model model = forced(testing::kQwen3Template, json);
  const std::string schema =
      R"({"type": "object", "properties": {"yes": {"type": "boolean"}}, "required": ["yes"], "additionalProperties": false})";
  for (const bool tools : {false, true}) {
    GenerateOptions options = at_most(100);
    options.json_schema = schema;
    Generation g = answer(model, asked(tools ? kTools : ""), options);
    EXPECT_EQ(g.reasoning, "{1}");
    EXPECT_EQ(g.text, R"({"yes": true})");
    options.json_schema.reset();
    options.regex = R"(\{[^}]*\})";
    g = answer(model, asked(tools ? kTools : ""), options);
    EXPECT_EQ(g.text, R"({"yes": true})");
    options.regex.reset();
    options.grammar = "start: \"{\" TEXT \"}\"\nTEXT: /[^}]+/";
    g = answer(model, asked(tools ? kTools : ""), options);
    EXPECT_EQ(g.reasoning, "{1}");
    EXPECT_EQ(g.text, R"({"yes": true})");
    // What is wrong with it is said of the option.
    options.grammar = "start: none";
    EXPECT_EQ(model.generate(asked(tools ? kTools : ""), options, nullptr).status().option(), "grammar");
  }
  const std::vector<std::string> call = {
      "<think>",          "\nhm", "\n</think>\n\n", "<tool_call>\n", "{\"name\": \"now\", ",
      "\"arguments\": {", "}}",   "\n</tool_call>"};
  const Model caller = forced(testing::kQwen3Template, call);
  GenerateOptions options = at_most(100);
  options.json_schema = schema;
  const Generation g = answer(caller, asked(kTools), options);
  EXPECT_EQ(g.text, "");
  ASSERT_EQ(g.tool_calls.size(), 1u);
  EXPECT_EQ(g.tool_calls[0].name, "now");
}

TEST(Dialogs, ATemplateWithoutToolsHasTheDocumentedForm) {
  const Model model = forced(testing::kPlainTemplate,
                             {"<tool_call>\n", "{\"name\": \"now\", ", "\"arguments\": {", "}}", "\n</tool_call>"});
  const Generation g = answer(model, asked(kTools), at_most(100));
  ASSERT_EQ(g.tool_calls.size(), 1u);
  ASSERT_EQ(g.notes.size(), 1u);
  EXPECT_NE(g.notes[0].find("shows no tools"), std::string::npos);
  const Prompt prompt = asked(kTools);
  const std::string text = model.tokenizer().render(prompt.messages, prompt.chat).value();
  EXPECT_NE(text.find("<tools>\n"), std::string::npos) << text;
  std::vector<Message> history = prompt.messages;
  history.push_back(Message::of_text("assistant", "So."));
  history.back().tool_calls = g.tool_calls;
  history.push_back(Message::of_text("tool", "12:00"));
  history.back().tool_call_id = g.tool_calls[0].id;
  const std::string whole = model.tokenizer().render(history, prompt.chat).value();
  EXPECT_NE(whole.find("So.\n\n<tool_call>\n{\"name\":\"now\",\"arguments\":{}}\n</tool_call><|im_end|>"),
            std::string::npos)
      << whole;
  EXPECT_NE(whole.find("<tool_response>\n12:00\n</tool_response>"), std::string::npos) << whole;
  EXPECT_EQ(model.tokenizer().encode(history, prompt.chat).value(), model
                                                                        .read([&] {
                                                                          Prompt read(history);
                                                                          read.chat = prompt.chat;
                                                                          return read;
                                                                        }())
                                                                        .value()
                                                                        .ids());
  // Not shown.
  const Prompt none = asked(kTools, "none");
  EXPECT_EQ(model.tokenizer().render(none.messages, none.chat).value().find("weather"), std::string::npos);
  EXPECT_TRUE(answer(model, none, at_most(100)).tool_calls.empty());
}

TEST(Dialogs, TheAnswerMustCall) {
  const Model model = forced(testing::kQwen3Template, kThoughtAndCall);
  for (const char* choice : {"required", "weather"}) {
    const Generation g = answer(model, asked(kTools, choice), at_most(200));
    EXPECT_EQ(g.text, "");
    ASSERT_FALSE(g.tool_calls.empty()) << choice;
    EXPECT_EQ(g.tool_calls[0].name, choice == std::string("weather") ? "weather" : "now");
  }
}

TEST(Dialogs, Errors) {
  const Model model = forced(testing::kQwen3Template, kThoughtAndCall);
  for (const auto& [tools, choice, words] :
       {std::tuple{"{", "", "tools: "},
        {"{}", "", "tools: should be a JSON list of tools"},
        {"[1]", "", "tools: [0] should be an object"},
        {R"([{"type": "function", "function": {"name": 1}}])", "", "tools: [0].function.name should be a string"},
        {R"([{"name": "f", "parameters": []}])", "", "tools: [0].parameters should be a JSON schema of an object"},
        {R"([{"name": "f"}, {"name": "f"}])", "", "tools: [1].name: two tools are called \"f\""},
        {R"([{"name": "f"}])", "g", "tool_choice should be auto, none, required or the name of a tool, is 'g'"},
        {"", "required", "tool_choice wants a call, and there are no tools"}}) {
    const Status status = model.generate(asked(tools, choice), at_most(1), nullptr).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << tools;
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
  }
  GenerateOptions options = at_most(4);
  options.beams = 2;
  EXPECT_EQ(model.generate(asked(kTools), options, nullptr).status().option(), "tools");
  EXPECT_TRUE(model.generate(asked(), options, nullptr).is_ok());
}

}  // namespace
}  // namespace situ
