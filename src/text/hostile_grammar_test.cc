// Sources that are refused, with the reason, and sources that would take years or gigabytes without the limits in
// rust/src/grammar/compile.rs. All on a thread with a small stack.
#include <pthread.h>

#include <ctime>
#include <functional>

#include "text/grammar_walk.h"

namespace situ {
namespace {

using nlohmann::json;

// 256 KB, as some runtimes give to their threads.
void on_small_stack(const std::function<void()>& work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 << 10), 0);
  pthread_t thread;
  const auto run = [](void* work) -> void* {
    (*static_cast<const std::function<void()>*>(work))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&work)), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

class HostileGrammar : public ::testing::Test {
 protected:
  // "none", or the error of compile or of the first steps of an answer.
  std::string error(GrammarKind kind, const std::string& source) {
    std::string error;
    on_small_stack([&] { error = first_error(kind, source); });
    return error;
  }

  void expect_refused(GrammarKind kind, const std::string& source, const std::string& reason) {
    const std::string message = error(kind, source);
    EXPECT_NE(message.find(reason), std::string::npos) << message << "\n" << source.substr(0, 200);
    EXPECT_NE(message.find(" cannot be used: "), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    EXPECT_LT(message.size(), 400u) << message;
  }

  // Refused or obeyed, but soon. Five seconds of its processor are meant, whatever else the machine does.
  std::string expect_answer(GrammarKind kind, const std::string& source) {
    const std::clock_t start = std::clock();
    const std::string message = error(kind, source);
    EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, 30) << source.substr(0, 200);
    return message;
  }

 private:
  std::string first_error(GrammarKind kind, const std::string& source) {
    Result<Grammar> grammar = Grammar::compile(tokenizer_, kind, source, tokenizer_.vocab_size());
    if (!grammar.is_ok()) return grammar.status().message();
    std::mt19937 random(1);
    for (int i = 0; i < 40; ++i) {
      const auto words = grammar->allowed();
      if (!words.is_ok()) return words.status().message();
      const std::vector<int64_t> ids = testing::ids_of(*words);
      if (ids.empty()) break;
      const Status status = grammar->append(ids[random() % ids.size()]);
      if (!status.is_ok()) return status.message();
    }
    return "none";
  }

  FolderTokenizer tokenizer_ = testing::load_tokenizer(testing::byte_level_tokenizer());
};

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

TEST_F(HostileGrammar, SchemasThatNothingMatches) {
  for (const char* schema : {
           "false",
           R"({"enum": []})",
           R"({"type": "integer", "minimum": 5, "maximum": 3})",
           R"({"type": "number", "exclusiveMinimum": 3, "exclusiveMaximum": 3})",
           R"({"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 4})",
           R"({"type": "integer", "minimum": 1, "maximum": 4, "multipleOf": 5})",
           R"({"type": "string", "minLength": 5, "maxLength": 3})",
           R"({"type": "string", "pattern": "^a{5}$", "maxLength": 3})",
           R"({"type": "array", "minItems": 2, "maxItems": 1})",
           R"({"type": "array", "items": false, "minItems": 1})",
           R"({"type": "object", "minProperties": 2, "maxProperties": 1})",
           R"({"type": "object", "properties": {"a": false}, "required": ["a"]})",
           R"({"allOf": [{"type": "string"}, {"type": "null"}]})",
           R"({"type": "string", "const": 3})",
       }) {
    expect_refused(GrammarKind::kJsonSchema, schema, "Unsatisfiable schema: ");
  }
  const std::string none = "no answer can ever match it", part = "no text can ever match a part of it";
  expect_refused(GrammarKind::kJsonSchema, R"({"$ref": "#"})", none);
  expect_refused(GrammarKind::kJsonSchema,
                 R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}})", none);
  const std::string endless = R"({"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "required": ["x"]})";
  expect_refused(GrammarKind::kJsonSchema, R"({"$ref": "#/$defs/a", "$defs": {"a": )" + endless + "}}", none);
  expect_refused(GrammarKind::kJsonSchema,
                 R"({"type": "array", "items": {"$ref": "#/$defs/a"}, "$defs": {"a": )" + endless + "}}", part);
}

TEST_F(HostileGrammar, SchemasWithKeywordsThatAreNotSupported) {
  for (const char* keyword : {"not", "if", "uniqueItems", "contains", "propertyNames", "dependentRequired",
                              "unevaluatedProperties", "$dynamicRef", "minLenght", "x-guidance", "dependencies"}) {
    const json inner = {{"type", "string"}, {keyword, true}};
    const std::string reason = std::string("at #/properties/a: the keyword '") + keyword + "' is not supported";
    expect_refused(GrammarKind::kJsonSchema, json{{"properties", {{"a", inner}}}}.dump(), reason);
    // Also where no answer comes by, and where only an old draft is named.
    const json unused = {{"$schema", "http://json-schema.org/draft-04/schema#"}, {"$defs", {{"a", inner}}}};
    expect_refused(GrammarKind::kJsonSchema, unused.dump(), keyword);
    expect_refused(GrammarKind::kLark, "start: %json " + inner.dump(), keyword);
  }
  for (const auto& [schema, reason] : {
           std::pair{R"({"$ref": "http://example.com/schema.json"})", "nothing else is read"},
           {R"({"$ref": "file:///schema.json"})", "'file:///schema.json' is not a place in this schema"},
           {R"({"$ref": "#/$defs/none"})", "at #/$ref: there is no '#/$defs/none'"},
           {R"({"$ref": "#/examples/0", "examples": [{"not": {}}]})", "at #/examples/0: the keyword 'not'"},
           {R"({"properties": {"a": {"$id": "b"}}})", "'$id' below the root"},
           {R"({"type": "string", "format": "phone"})", "Unknown format: phone"},
           {R"({"type": "string", "format": "unknown"})", "Unknown format: unknown"},
           {R"({"properties": {"a": {"type": "string", "format": "int64"}}})",
            "at #/properties/a/format: Unknown format: int64"},
           {R"({"type": "string", "pattern": "a(?=b)c"})", "at #/pattern: look-around"},
           {R"({"type": "string", "pattern": "a("})", "at #/pattern: unclosed group"},
           {R"({"type": "string", "pattern": "a(?P<stop>b)c"})", "a group with the name 'stop'"},
           {R"({"oneOf": [{"type": "string", "minLength": 3}, {"type": "string", "maxLength": 9}]})", "oneOf"},
           {R"({"const": 9007199254740993})", "the number 9007199254740993 is too large to be exact"},
           {R"({"allOf": [{"type": "integer", "multipleOf": 65537}, {"multipleOf": 65539}]})", "overflow"},
           {R"({"type": "number", "multipleOf": 0})", "'multipleOf' must be above 0"},
           {R"({"type": "array", "prefixItems": [{}], "additionalItems": false})", "'prefixItems' beside"},
           {R"({"type": "text"})", "Invalid type: text"},
           {R"([1])", "a schema is an object or a boolean"},
           {R"({"properties": 1})", "at #/properties: must be an object"},
       }) {
    expect_refused(GrammarKind::kJsonSchema, schema, reason);
  }
}

// llguidance says what is wrong, and not where.
TEST_F(HostileGrammar, PlacesInSchemas) {
  for (
      const auto& [schema, reason] : {
          std::pair{R"({"properties": {"a": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}})",
                    "at #/properties/a/oneOf: oneOf"},
          {R"({"type": "object", "properties": {"a": {"type": "integer", "minimum": 5, "maximum": 3}},
                "required": ["a"]})",
           "at #/properties/a: Unsatisfiable schema: "},
          {R"({"type": "object", "properties": {"a": false, "b": {"items": {"$ref": "#/definitions/c"}, "minItems": 1, "type": "array"}},
                "required": ["b"], "definitions": {"c": {"type": "string", "minLength": 2, "maxLength": 1}}})",
           "at #/definitions/c: Unsatisfiable schema: "},
          {R"({"type": "object", "properties": {"a": false}, "required": ["a"]})", "at #/properties/a: Unsatisfiable"},
          {R"({"anyOf": [{"$ref": "#"}, {"type": ["null", "text"]}]})", "at #/anyOf/1/type: Invalid type: text"},
          {R"({"allOf": [{"type": "string"}, {"type": "null"}]})", "at #/allOf: Unsatisfiable schema: "},
          {R"({"properties": {"a": {"required": 1}}})", "at #/properties/a/required: "},
      }) {
    expect_refused(GrammarKind::kJsonSchema, schema, reason);
  }
}

TEST_F(HostileGrammar, SchemasThatAreNoJson) {
  expect_refused(GrammarKind::kJsonSchema, "{\"type\":\n \"object\",, }", "key must be a string at line 2 column 11");
  expect_refused(GrammarKind::kJsonSchema, "", "not valid JSON: EOF while parsing a value at line 1 column 0");
  expect_refused(GrammarKind::kJsonSchema, repeated("[", 100000), "recursion limit exceeded");
  const std::string deep = repeated("{\"items\":", 1000) + "{}" + repeated("}", 1000);
  expect_refused(GrammarKind::kJsonSchema, deep, "recursion limit exceeded");
  EXPECT_NE(error(GrammarKind::kJsonSchema, "\"\xFF\"").find("not valid UTF-8"), std::string::npos);
}

TEST_F(HostileGrammar, Regexes) {
  for (const auto& [regex, reason] : {
           std::pair{"a(", "unclosed group"},
           {"[^\\s\\S]", "no answer can ever match it"},
           {"a(?=b)", "look-around"},
           {"(a)\\1", "backreferences are not supported"},
           {"\\ba", "lookarounds not supported"},
           {"a(?P<stop>b)", "a group with the name 'stop' is not supported"},
       }) {
    expect_refused(GrammarKind::kRegex, regex, reason);
  }
  expect_refused(GrammarKind::kRegex, repeated("(", 30000) + "a" + repeated(")", 30000), "nested");
  expect_refused(GrammarKind::kRegex, std::string(70000, 'a'), "it has 70000 bytes, the limit is 65536");
  expect_refused(GrammarKind::kRegex, repeated(".*", 30000), "in a row may be left out");
}

TEST_F(HostileGrammar, Lark) {
  for (const auto& [lark, reason] : {
           std::pair{"", "no start rule found"},
           {"start: foo", "line 1, column 8: unknown name: \"foo\""},
           {"start: \"a\" |\n  )x", "line 2, column 3: expecting rule"},
           {"start: \"a\" start", "no answer can ever match it"},
           {"start: a\na: b\nb: a", "no answer can ever match it"},
           {"start: \"x\" | \"y\" b\nb: \"z\" b", "no text can ever match its part 'b'"},
           {"start: \"x\" X\nX: /[^\\s\\S]/", "no answer can ever match it"},
           {"start: <s>", "a special token (<...>) is not supported"},
           {"start: <[1-10]>", "a special token (<...>) is not supported"},
           {"start: \"a\" <[*]>", "a special token (<...>) is not supported"},
           {"start: <none>", "unknown special token: \"<none>\""},
           {"start: a \"z\"\na[stop=\".\"]: /.*/", "stop= is not supported"},
           {"start: a\na[max_tokens=3]: /.*/", "max_tokens= is not supported"},
           {"start: a\na[temperature=0.5]: /.*/", "temperature= is not supported"},
           {"start: a\na[temperature=0.0]: /.*/", "temperature= is not supported"},
           {"%llguidance {\"allow_invalid\\u005futf8\": true}\nstart: /a/", "'allow_invalid_utf8' is not supported"},
           {"start: %json {\"$schema\": \"http://json-schema.org/draft-04/schema#\"}", "'$schema' inside %json"},
           {"start: %json {\"$ref\": \"#/a%20b\", \"a b\": {}}", "'#/a%20b' inside %json is not supported"},
           {"start: @other", "unknown grammar @other"},
       }) {
    expect_refused(GrammarKind::kLark, lark, reason);
  }
  const std::string deep = "start: " + repeated("(", 10000) + "\"a\"" + repeated(")", 10000);
  expect_refused(GrammarKind::kLark, deep, "too deeply nested");
}

// Each rule is a recursion of the compiler.
TEST_F(HostileGrammar, ChainsOfRules) {
  std::string rules = "start: a0\n", terminals = "start: A0\n";
  for (int i = 0; i < 4000; ++i) {
    rules += "a" + std::to_string(i) + ":(a" + std::to_string(i + 1) + ")\n";
    terminals += "A" + std::to_string(i) + ":A" + std::to_string(i + 1) + "\n";
  }
  EXPECT_EQ(error(GrammarKind::kLark, rules + "a4000: \"x\""), "none");
  EXPECT_EQ(error(GrammarKind::kLark, terminals + "A4000: \"x\""), "none");
}

TEST_F(HostileGrammar, ChainsOfReferences) {
  json definitions = {{"9000", {{"type", "null"}}}};
  for (int i = 0; i < 9000; ++i) {
    definitions[std::to_string(i)] = {{"allOf", {{{"$ref", "#/$defs/" + std::to_string(i + 1)}}}}};
  }
  EXPECT_EQ(error(GrammarKind::kJsonSchema, json{{"$ref", "#/$defs/0"}, {"$defs", definitions}}.dump()), "none");
}

TEST_F(HostileGrammar, LargeSchemas) {
  EXPECT_EQ(expect_answer(GrammarKind::kJsonSchema, R"({"type": "string", "maxLength": 1000000000})"), "none");
  EXPECT_EQ(expect_answer(GrammarKind::kJsonSchema, R"({"type": "string", "minLength": 1000000000})"), "none");
  EXPECT_EQ(expect_answer(GrammarKind::kJsonSchema, R"({"type": "array", "minItems": 1000000000})"), "none");
  json names = json::array(), properties, bomb, patterns = json::array();
  for (int i = 0; i < 20000; ++i) names.push_back("value" + std::to_string(i));
  for (int i = 0; i < 10000; ++i) properties["p" + std::to_string(i)] = {{"type", "string"}};
  for (int i = 0; i < 20; ++i) {
    bomb.push_back({{"anyOf",
                     {{{"properties", {{"p" + std::to_string(i), {{"const", 1}}}}}},
                      {{"properties", {{"p" + std::to_string(i), {{"const", 2}}}}}}}}});
  }
  for (int i = 0; i < 300; ++i) {
    patterns.push_back({{"type", "string"}, {"pattern", repeated(".*", 400) + std::to_string(i)}});
  }
  EXPECT_EQ(expect_answer(GrammarKind::kJsonSchema, json{{"enum", names}}.dump()), "none");
  const auto expect_large = [&](const json& schema, const std::string& reason) {
    const std::string message = expect_answer(GrammarKind::kJsonSchema, schema.dump());
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  };
  expect_large({{"properties", properties}}, "number of symbols) too big");
  expect_large({{"prefixItems", patterns}}, "too big");
  expect_large({{"allOf", bomb}}, "schema too large");
}

TEST_F(HostileGrammar, ExpensiveExpressions) {
  for (const char* regex :
       {"(a{1000}){1000}", "(((((a{100}){100}){100}){100}){100}){100}", "(a|b)*a(a|b){20}", "(x+x+)+y",
        "(a?){1000}a{1000}", "(.*a.{30}|.*b.{31}|.*c.{32})d", "(\\pL{50}\\pN{50}){50}"}) {
    expect_answer(GrammarKind::kRegex, regex);
  }
  expect_answer(GrammarKind::kRegex, repeated("(a?b?c?d?e?f)", 2000));
  expect_answer(GrammarKind::kRegex, repeated("[a-z]{1,500}", 4000));
  std::string doubling = "start: A0\n";
  for (int i = 0; i < 60; ++i) {
    const std::string next = " A" + std::to_string(i + 1);
    doubling += "A" + std::to_string(i) + ":" + next + next + "\n";
  }
  expect_refused(GrammarKind::kLark, doubling + "A60: \"x\"", "too big");
}

// An answer that can be read in very many ways: a step ends after seconds, and with it the use of the grammar.
TEST_F(HostileGrammar, AmbiguousGrammars) {
  EXPECT_EQ(expect_answer(GrammarKind::kLark, "start: start start | \"a\" | \"\""), "none");
  json model = testing::byte_level_tokenizer();
  json token = testing::special(261, std::string(50, 'a'));
  token["special"] = false;
  model["added_tokens"].push_back(token);
  const FolderTokenizer tokenizer = testing::load_tokenizer(model);
  const std::string source = "start: s\ns: s s s s | s s s | s s | \"a\" | \"\"";
  Grammar grammar = testing::compiled(tokenizer, GrammarKind::kLark, source);
  std::string message;
  for (int i = 0; i < 100 && message.empty(); ++i) {
    const std::clock_t start = std::clock();
    message = grammar.append(261).message();
    EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, 30);
  }
  EXPECT_TRUE(message.starts_with("the grammar cannot go on: ")) << message;
  EXPECT_EQ(grammar.append('a').message(), message);
  EXPECT_EQ(grammar.rewind(1).message(), message);
  EXPECT_EQ(grammar.allowed().status().message(), message);
  Result<Grammar> fork = grammar.fork();
  ASSERT_TRUE(fork.is_ok());
  EXPECT_EQ(fork->allowed().status().message(), message);
}

}  // namespace
}  // namespace situ
