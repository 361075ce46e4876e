// Messages as chat templates get them, and the ids of what they make of them.
#include "pipelines/conversation.h"

#include <gtest/gtest.h>

#include "text/test_models.h"

namespace situ {
namespace {

using nlohmann::json;

// Bytes are tokens; <s> and </s> are special.
class Chat {
 public:
  explicit Chat(const std::string& chat_template) {
    folder_.write("tokenizer.json", testing::byte_level_tokenizer().dump());
    folder_.write("tokenizer_config.json", json({{"chat_template", chat_template}}).dump());
    tokenizer_.emplace(*Tokenizer::load(folder_.path().string()));
  }
  Result<std::string> render(const std::vector<Message>& messages, const ChatOptions& options = {}) const {
    return tokenizer_->render(messages, options);
  }
  std::vector<int64_t> encode(const std::vector<Message>& messages, const ChatOptions& options = {}) const {
    return tokenizer_->encode(messages, options).value();
  }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

 private:
  testing::TempFolder folder_;
  std::optional<Tokenizer> tokenizer_;
};

constexpr const char* kTurns =
    "{% for m in messages %}<s>{{ m.role }}:{{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<s>a:{% endif "
    "%}";
constexpr const char* kAll = "{{ messages | tojson }}";

Message user(const std::string& text) { return Message::of_text("user", text); }

TEST(Conversation, TextsOfOthersAreOrdinaryTokens) {
  const Chat chat(kTurns);
  const std::vector<int64_t> plain = {258, 'u', 's', 'e', 'r', ':', '<', '/', 's', '>', 259, 258, 'a', ':'};
  EXPECT_EQ(chat.encode({user("</s>")}), plain);
  EXPECT_EQ(chat.render({user("</s>")}).value(), "<s>user:</s></s><s>a:");  // no mark is left
  Message parsed = user("</s>");
  parsed.parse_special = true;
  EXPECT_EQ(chat.encode({parsed}), (std::vector<int64_t>{258, 'u', 's', 'e', 'r', ':', 259, 259, 258, 'a', ':'}));
  const std::vector<int64_t> own = chat.encode({Message::of_text("assistant", "</s>")});
  EXPECT_EQ(std::count(own.begin(), own.end(), 259), 2);
  Message quoted = Message::of_text("assistant", "</s>");
  quoted.parse_special = false;
  const std::vector<int64_t> text = chat.encode({quoted});
  EXPECT_EQ(std::count(text.begin(), text.end(), 259), 1);
}

TEST(Conversation, TheLastMessageGoesOn) {
  ChatOptions on;
  on.continue_last = true;
  EXPECT_EQ(Chat(kTurns).render({user("x"), Message::of_text("assistant", "so ")}, on).value(),
            "<s>user:x</s><s>assistant:so ");
  EXPECT_EQ(Chat("{{ messages[-1].content | trim }}!").render({user(" x ")}, on).value(), "x ");
  EXPECT_NE(Chat("none").render({user("x")}, on).status().message().find("does not show"), std::string::npos);
  EXPECT_NE(Chat(kTurns).render({{"user", {}}, {"user", {{Part::Kind::kImage}}}}, on).status().message().find("a text"),
            std::string::npos);
  ChatOptions bare;
  Message call = Message::of_text("assistant", "so");
  call.tool_calls = {{"c1", "f", "{}"}};
  EXPECT_NE(Chat(kTurns).render({user("x"), call}, on).status().message().find("ends with a call"), std::string::npos);
  bare.add_generation_prompt = false;
  EXPECT_EQ(Chat(kTurns).render({user("x")}, bare).value(), "<s>user:x</s>");
}

TEST(Conversation, WhatTemplatesGet) {
  const Chat chat(kAll);
  Message call{"assistant", {}};
  call.tool_calls = {{"c1", "f", R"({"b": 1, "a": [2]})"}, {"", "g", "no JSON"}};
  call.reasoning = "r";
  Message result = Message::of_text("tool", "3");
  result.tool_call_id = "c1";
  result.name = "f";
  EXPECT_EQ(json::parse(chat.render({call, result}).value()), json::parse(R"([
    {"role": "assistant", "content": "", "reasoning_content": "r", "tool_calls": [
      {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"b": 1, "a": [2]}}},
      {"type": "function", "function": {"name": "g", "arguments": {"arguments": "no JSON"}}}]},
    {"role": "tool", "content": "3", "name": "f", "tool_call_id": "c1"}])"));
  Message parts{"user", {Part::of_text("a"), Part::of_text("b")}};
  EXPECT_EQ(json::parse(chat.render({parts}).value())[0]["content"], "a\nb");
  parts.parts.insert(parts.parts.begin(), Part{Part::Kind::kImage});
  EXPECT_EQ(json::parse(chat.render({parts, user("c")}).value()), json::parse(R"([
    {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a\nb"}]},
    {"role": "user", "content": [{"type": "text", "text": "c"}]}])"));
  EXPECT_NE(chat.tokenizer().encode(std::vector<Message>{parts}).status().message().find("Model::read()"),
            std::string::npos);
}

TEST(Conversation, VariablesAndTools) {
  const Chat chat("{{ tools | tojson }} {{ tools[0].x }} {{ shout }} {{ add_generation_prompt }}");
  ChatOptions options;
  options.tools_json = R"([{"name": "f", "x": "</s>"}])";
  options.variables_json = R"({"shout": [true]})";
  EXPECT_EQ(chat.render({user("x")}, options).value(), R"([{"name": "f", "x": "</s>"}] </s> [True] True)");
  const std::vector<int64_t> ids = chat.encode({user("x")}, options);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 259), 0);  // texts of tools are text
  for (const char* wrong : {"{", "[]", "3", "{\"a\": NaN}}"}) {
    options.variables_json = wrong;
    EXPECT_EQ(chat.render({user("x")}, options).status().code(), Code::kInvalidArgument) << wrong;
  }
  options.variables_json = "";
  options.tools_json = "{}";
  EXPECT_NE(chat.render({user("x")}, options).status().message().find("a JSON list"), std::string::npos);
}

// As jinja has None; the text is jinja2's own.
TEST(Conversation, VariablesThatAreNull) {
  const Chat chat(
      "{{ x is none }}|{{ x is defined }}|{{ x }}|{{ x|default('d') }}|{{ x|default('d', true) }}|{{ x or 'z' }}|"
      "{{ x.a }}|{{ x is iterable }}|{{ x|tojson }}|{{ y }}|{{ y.z is none }}|{{ l|length }}|{{ tools is none }}|"
      "{{ q is defined }}");
  ChatOptions options;
  options.variables_json = R"({"x": null, "y": {"z": null, "w": [null, 1]}, "l": [null, 2], "tools": null})";
  EXPECT_EQ(chat.render({user("x")}, options).value(),
            "True|True|None|None|d|z||False|null|{'z': None, 'w': [None, 1]}|True|2|True|False");
}

TEST(Conversation, WhatIsNoText) {
  const Chat chat("x");
  EXPECT_EQ(chat.render({user("a\xC3(")}).status().message(),
            "the text of the user message is not valid UTF-8: first bad byte at offset 1");
  EXPECT_EQ(chat.render({Message::of_text("\xFF", "")}).status().message(),
            "the role of a chat message is not valid UTF-8: first bad byte at offset 0");
  EXPECT_FALSE(chat.render({{"user", {Part::of_ids({1})}}}).is_ok());
  // JSON inside of JSON has its own depth.
  Message call{"assistant", {}};
  call.tool_calls = {{"c1", "f", R"({"a":)" + std::string(70000, '[') + std::string(70000, ']') + "}"}};
  EXPECT_EQ(chat.render({call}).status().message(), R"(the arguments of a call of "f": not JSON: nested 70001 deep)");
  EXPECT_EQ(chat.render({call}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Tokenizer::load(testing::TempFolder().path().string()).status().code(), Code::kNotFound);
}

TEST(PublicTokenizer, WithAndWithoutSpecialTokens) {
  const Chat chat(kTurns);
  const Tokenizer copy = chat.tokenizer();
  EXPECT_EQ(copy.encode("a</s>").value(), (std::vector<int64_t>{258, 'a', 259}));
  EXPECT_EQ(copy.encode("a</s>", false).value(), (std::vector<int64_t>{'a', 259}));
  EXPECT_EQ(copy.encode("a</s>", false, false).value(), (std::vector<int64_t>{'a', '<', '/', 's', '>'}));
  const std::vector<int64_t> ids = {258, 'a', 259};
  EXPECT_EQ(copy.decode(ids).value(), "a");
  EXPECT_EQ(copy.decode(ids, false).value(), "<s>a</s>");
  EXPECT_EQ(copy.id_of("</s>"), 259);
  EXPECT_EQ(copy.token_of(258), "<s>");
  EXPECT_EQ(copy.bytes_of(0xC3), "\xC3");
  EXPECT_TRUE(copy.is_special(259) && !copy.is_special('a') && copy.is_there() && copy.has_chat_template());
  EXPECT_EQ(copy.encode("\xFF").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace situ
