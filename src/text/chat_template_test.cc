#include <gtest/gtest.h>

#include "text/test_models.h"
#include "text/tokenizer.h"

namespace situ {
namespace {

using nlohmann::json;
using testing::TempFolder;

const json kHello = {{{"role", "user"}, {"content", "hello"}}};

// A model folder with the files of one test.
class ChatFolder : public TempFolder {
 public:
  explicit ChatFolder(const json& chat_template = nullptr) {
    write("tokenizer.json", testing::byte_level_tokenizer().dump());
    write("tokenizer_config.json", json({{"chat_template", chat_template}, {"bos_token", "<s>"}}).dump());
  }
  Result<std::string> render(const json& messages = kHello, const std::string& variables = "") {
    Result<FolderTokenizer> tokenizer = FolderTokenizer::load(path());
    if (!tokenizer.is_ok()) return tokenizer.status();
    return tokenizer->apply_chat_template(messages.dump(), true, variables);
  }
};

Result<std::string> render(const std::string& chat_template, const std::string& variables = "") {
  return ChatFolder(chat_template).render(kHello, variables);
}

TEST(ChatTemplate, IsFoundWhereModelsKeepIt) {
  ChatFolder none;
  EXPECT_FALSE(FolderTokenizer::load(none.path())->has_chat_template());
  EXPECT_EQ(none.render().status().message(), "the model has no chat template");

  ChatFolder folder("config");
  EXPECT_EQ(folder.render().value(), "config");
  folder.write("chat_template.json", R"({"chat_template": "processor"})");
  EXPECT_EQ(folder.render().value(), "config");
  folder.write("tokenizer_config.json", "{}");
  EXPECT_EQ(folder.render().value(), "processor");
  folder.write("chat_template.jinja", "file");
  EXPECT_EQ(folder.render().value(), "file");
  folder.write("additional_chat_templates/tool_use.jinja", "with tools");
  EXPECT_EQ(folder.render().value(), "file");
  EXPECT_EQ(folder.render(kHello, R"({"tools": []})").value(), "with tools");
}

TEST(ChatTemplate, ListsHaveNames) {
  json list = {{{"name", "default"}, {"template", "plain"}}, {{"name", "tool_use"}, {"template", "tools"}}};
  ChatFolder folder(list);
  EXPECT_EQ(folder.render().value(), "plain");
  EXPECT_EQ(folder.render(kHello, R"({"tools": [{}]})").value(), "tools");
  list[0]["name"] = "rag";
  ChatFolder other(list);
  EXPECT_EQ(other.render().status().message(), "the model has no default chat template, only 'rag' 'tool_use'");
}

TEST(ChatTemplate, SeesMessagesTokensAndVariables) {
  const std::string text =
      "{{ bos_token }}{% for m in messages %}\n  [{{ m.role }}:{{ m['content'].upper() }}]{% endfor %}\n"
      "{%- if add_generation_prompt %} go{% endif %} {{ x }} {{ tools is none }}\n";
  EXPECT_EQ(render(text, R"({"x": {"a": [1.0, null]}})").value(), "<s>  [user:HELLO] go {'a': [1.0, None]} True");
  EXPECT_EQ(render("{{ x | tojson }}", R"({"x": {"b": "<&'é", "a": [1.0, null, true]}})").value(),
            R"({"b": "<&'é", "a": [1.0, null, true]})");
  EXPECT_EQ(render("{{ strftime_now('%Y') | length }}").value(), "4");
}

TEST(ChatTemplate, TakesMessagesAsJson) {
  ChatFolder folder("{% for p in messages[0].content %}{{ p.type }} {% endfor %}");
  const Result<FolderTokenizer> tokenizer = FolderTokenizer::load(folder.path());
  const auto apply = [&](const std::string& messages) { return tokenizer->apply_chat_template(messages, true); };
  EXPECT_EQ(apply(R"([{"role": "user", "content": [{"type": "image"}, {"type": "text"}]}])").value(), "image text ");
  EXPECT_FALSE(apply("[").is_ok());
  EXPECT_FALSE(apply(std::string(1000000, '[')).is_ok());
  EXPECT_FALSE(apply("[\"\xFF\"]").is_ok());
}

TEST(ChatTemplate, BadInputIsAnError) {
  EXPECT_NE(render("{{ raise_exception('roles must alternate') }}").status().message().find("roles must alternate"),
            std::string::npos);
  EXPECT_NE(render("{{ raise_exception('one\\nline') }}").status().message().find("one?line"), std::string::npos);
  EXPECT_NE(render("a\n{{ x").status().message().find("line 2"), std::string::npos);
  EXPECT_NE(render("a\n{{ x").status().message().find("tokenizer_config.json: chat template"), std::string::npos);
  EXPECT_FALSE(render("{{ a.b.c }}").is_ok());
  EXPECT_FALSE(render("{{ x }}", "{").is_ok());
  EXPECT_FALSE(render("{{ x }}", "[1]").is_ok());
  EXPECT_FALSE(render("{{ x }}", "{\"x\":" + std::string(1000000, '[') + std::string(1000000, ']') + "}").is_ok());
  EXPECT_EQ(render("{{ x }}", "{\"x\": \"\xFF\"}").status().message(),
            "the text of the chat template variables is not valid UTF-8: first bad byte at offset 7");
  ChatFolder bytes;
  bytes.write("chat_template.jinja", "\xFF{{ 1 }}");
  EXPECT_FALSE(bytes.render().is_ok());
}

// Without limits each of these runs for ever, overflows the stack or takes all memory. More in rust/src/chat/tests.rs.
TEST(ChatTemplate, HostileTemplatesAreRefused) {
  for (const std::string text : {
           "{% for i in range(10**12) %}x{% endfor %}",
           "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
           "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
           "{% set n = namespace(x='aaaa') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}",
           "{% set n = namespace(x=[]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
           "{% set n = namespace() %}{% set n.n = n %}{{ n }}",
           "{% set x %}{% for i in range(99999) %}{{ 'a' * 100000 }}{% endfor %}{% endset %}",
       }) {
    EXPECT_FALSE(render(text).is_ok()) << text;
  }
  EXPECT_FALSE(render("{{ " + std::string(200000, '-') + "1 }}").is_ok());
  EXPECT_FALSE(render("{{ " + std::string(200000, '(') + "1 }}").is_ok());
}

TEST(SmolLm2, RendersThePromptOfTheReference) {
  const std::filesystem::path folder = testing::shared_model("smollm2-135m-instruct-int4");
  const json cases = testing::expected_cases(folder);
  if (cases.empty()) GTEST_SKIP() << "no model in " << folder;
  const Result<FolderTokenizer> tokenizer = FolderTokenizer::load(folder);
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  const json user = {{"role", "user"}, {"content", "When does summer start?"}},
             system = {{"role", "system"},
                       {"content", "You are a helpful AI assistant named SmolLM, trained by Hugging Face"}};
  const Result<std::string> prompt = tokenizer->apply_chat_template(json::array({system, user}).dump(), true);
  ASSERT_TRUE(prompt.is_ok()) << prompt.status().message();
  EXPECT_EQ(prompt.value(), cases[0]["prompt"].get<std::string>());
  EXPECT_EQ(tokenizer->apply_chat_template(json::array({user}).dump(), true).value(),
            cases[0]["prompt"].get<std::string>())
      << "default system text";
}

}  // namespace
}  // namespace situ
