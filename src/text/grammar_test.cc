#include "text/grammar.h"

#include <functional>
#include <regex>
#include <set>
#include <thread>

#include "text/grammar_walk.h"

namespace situ {
namespace {

using nlohmann::json;
using testing::allowed_ids;
using testing::compiled;

FolderTokenizer bytes() { return testing::load_tokenizer(testing::byte_level_tokenizer()); }

std::string text_of(const FolderTokenizer& tokenizer, const std::vector<int64_t>& ids) {
  return *tokenizer.decode(ids, false);
}

// Texts of random answers. Every one is a whole match as far as the grammar says.
void expect_answers(const FolderTokenizer& tokenizer, GrammarKind kind, const std::string& source,
                    const std::function<bool(const std::string&)>& is_match, int answers = 20) {
  const Grammar start = compiled(tokenizer, kind, source);
  std::mt19937 random(11);
  for (int i = 0; i < answers; ++i) {
    Grammar grammar = std::move(start.fork()).value();
    const auto ids = testing::walk(tokenizer, grammar, random);
    ASSERT_TRUE(ids) << source << ": no end";
    const std::string text = text_of(tokenizer, *ids);
    EXPECT_TRUE(is_match(text)) << source << "\n" << text;
  }
}

struct SchemaCase {
  const char* schema;
  bool (*is_match)(const json&);
};

bool only(const json& value, const std::set<std::string>& names) {
  for (const auto& [name, unused] : value.items()) {
    if (!names.contains(name)) return false;
  }
  return true;
}

bool is_text(const json& value, size_t most) {
  if (!value.is_string()) return false;
  const std::string text = value;
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; })) <=
         most;
}

bool is_tree(const json& value) {
  if (!value.is_object() || !only(value, {"v", "left"}) || !value.contains("v")) return false;
  return value["v"].is_boolean() && (!value.contains("left") || value["left"].is_null() || is_tree(value["left"]));
}

const SchemaCase kSchemas[] = {
    {R"({"type": "object", "title": "Person", "additionalProperties": false, "required": ["name", "age"],
         "properties": {"name": {"type": "string", "maxLength": 5},
                        "age": {"type": "integer", "minimum": 0, "maximum": 150},
                        "tags": {"type": "array", "items": {"enum": ["a", "b\"", 3, null]}, "maxItems": 3}}})",
     [](const json& v) {
       if (!v.is_object() || !only(v, {"name", "age", "tags"})) return false;
       if (!v.contains("name") || !v.contains("age")) return false;
       const bool person = is_text(v["name"], 5) && v["age"].is_number_integer() && v["age"] >= 0 && v["age"] <= 150;
       if (!person || !v.contains("tags")) return person;
       if (!v["tags"].is_array() || v["tags"].size() > 3) return false;
       for (const json& tag : v["tags"]) {
         if (tag != "a" && tag != "b\"" && tag != 3 && !tag.is_null()) return false;
       }
       return true;
     }},
    {R"({"type": "integer", "minimum": -17, "exclusiveMaximum": 1203})",
     [](const json& v) { return v.is_number_integer() && v >= -17 && v < 1203; }},
    {R"({"type": "integer", "minimum": 1, "maximum": 500, "multipleOf": 7})",
     [](const json& v) { return v.is_number_integer() && v >= 1 && v <= 500 && v.get<int>() % 7 == 0; }},
    {R"({"type": "number", "minimum": -1.5, "maximum": 2.25})",
     [](const json& v) { return v.is_number() && v >= -1.5 && v <= 2.25; }},
    {R"({"type": "string", "pattern": "^\\d{2}-[a-c]+$", "maxLength": 7})",
     [](const json& v) {
       return is_text(v, 7) && std::regex_match(v.get<std::string>(), std::regex("\\d{2}-[a-c]+"));
     }},
    {R"({"type": "string", "minLength": 2, "maxLength": 3})",
     [](const json& v) { return is_text(v, 3) && !is_text(v, 1); }},
    {R"({"type": "string", "format": "date"})",
     [](const json& v) { return std::regex_match(v.get<std::string>(), std::regex("\\d{4}-[01]\\d-[0-3]\\d")); }},
    {R"({"type": "object", "properties": {"a": {"type": "integer", "format": "int32", "x-order": 1, "nullable": true},
                                          "b": {"type": "string", "format": "password", "maxLength": 3}},
         "propertyOrdering": ["a"], "markdownDescription": "", "required": ["a"], "additionalProperties": false})",
     [](const json& v) {
       return v.is_object() && only(v, {"a", "b"}) && v.contains("a") && v["a"].is_number_integer() &&
              (!v.contains("b") || is_text(v["b"], 3));
     }},
    {R"({"type": "array", "prefixItems": [{"const": 1}, {"const": [1, {"a": "b"}]}], "items": {"type": "null"},
         "minItems": 2, "maxItems": 4})",
     [](const json& v) {
       bool match = v.is_array() && v.size() >= 2 && v.size() <= 4 && v[0] == 1 && v[1] == json{1, {{"a", "b"}}};
       for (size_t i = 2; match && i < v.size(); ++i) match = v[i].is_null();
       return match;
     }},
    {R"({"anyOf": [{"type": "boolean"}, {"const": "x"}], "default": 3})",
     [](const json& v) { return v.is_boolean() || v == "x"; }},
    {R"({"oneOf": [{"type": "integer", "minimum": 0, "maximum": 3}, {"type": "null"}]})",
     [](const json& v) { return v.is_null() || (v >= 0 && v <= 3); }},
    {R"({"allOf": [{"type": "integer", "minimum": 2}, {"maximum": 9}]})",
     [](const json& v) { return v.is_number_integer() && v >= 2 && v <= 9; }},
    {R"({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/tree", "definitions": {"tree":
         {"type": "object", "required": ["v"], "additionalProperties": false, "properties":
         {"v": {"type": "boolean"}, "left": {"anyOf": [{"type": "null"}, {"$ref": "#/definitions/tree"}]}}}}})",
     is_tree},
    // The older drafts do not know const; here it is not left out.
    {R"({"$schema": "http://json-schema.org/draft-04/schema#", "const": 5})", [](const json& v) { return v == 5; }},
    {R"({"type": "object", "properties": {"a/b": {"enum": [1]}}, "additionalProperties": {"$ref": "#/properties/a~1b"},
         "required": ["c", "a/b"], "maxProperties": 2})",
     [](const json& v) { return v == json{{"a/b", 1}, {"c", 1}}; }},
};

TEST(Grammar, JsonSchemas) {
  const FolderTokenizer tokenizer = bytes();
  for (const SchemaCase& test : kSchemas) {
    expect_answers(tokenizer, GrammarKind::kJsonSchema, test.schema, [&](const std::string& text) {
      const json value = json::parse(text, nullptr, false);
      return !value.is_discarded() && test.is_match(value);
    });
  }
}

// The list of rust/src/grammar/schema.rs holds those that the library obeys.
TEST(Grammar, FormatsOfTexts) {
  const FolderTokenizer tokenizer = bytes();
  for (const auto& [format, text] : {
           std::pair{"date", "2026-02-28"},
           {"date-time", "2026-02-28T10:20:30Z"},
           {"duration", "P1DT2H"},
           {"email", "a.b@c.org"},
           {"hostname", "c.org"},
           {"ipv4", "127.0.0.1"},
           {"ipv6", "::1"},
           {"time", "10:20:30Z"},
           {"uri", "https://c.org/a?b#d"},
           {"uuid", "123e4567-e89b-12d3-a456-426614174000"},
       }) {
    Grammar grammar =
        compiled(tokenizer, GrammarKind::kJsonSchema, json{{"type", "string"}, {"format", format}}.dump());
    for (const char c : '"' + std::string(text) + '"') ASSERT_TRUE(grammar.append(c).is_ok()) << format << " " << c;
    EXPECT_TRUE(grammar.must_end()) << format;
    ASSERT_TRUE(grammar.rewind(static_cast<int64_t>(std::string_view(text).size()) + 1).is_ok());
    EXPECT_FALSE(grammar.append('"').is_ok()) << format << " is obeyed";
  }
}

TEST(Grammar, JsonSchemasWithByteFallback) {
  const FolderTokenizer tokenizer = testing::load_tokenizer(testing::byte_fallback_tokenizer());
  expect_answers(tokenizer, GrammarKind::kJsonSchema, kSchemas[0].schema, [](const std::string& text) {
    const json value = json::parse(text, nullptr, false);
    return !value.is_discarded() && kSchemas[0].is_match(value);
  });
}

TEST(Grammar, JsonSchemasOfSharedModels) {
  const auto folder = testing::shared_model("smollm2-135m-instruct-int4");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  const Result<FolderTokenizer> tokenizer = FolderTokenizer::load(folder);
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  for (const SchemaCase& test : kSchemas) {
    const auto is_match = [&](const std::string& text) {
      const json value = json::parse(text, nullptr, false);
      return !value.is_discarded() && test.is_match(value);
    };
    expect_answers(*tokenizer, GrammarKind::kJsonSchema, test.schema, is_match, 5);
  }
}

// Between two parts of an answer stand at most 32 spaces: an answer cannot go on with them for ever.
TEST(Grammar, SpacesEnd) {
  const FolderTokenizer tokenizer = bytes();
  Grammar grammar = compiled(tokenizer, GrammarKind::kJsonSchema, R"({"type": "array"})");
  ASSERT_TRUE(grammar.append('[').is_ok());
  for (int i = 0; i < 32; ++i) ASSERT_TRUE(grammar.append(' ').is_ok()) << i;
  EXPECT_FALSE(grammar.append(' ').is_ok());
  EXPECT_TRUE(grammar.append(']').is_ok());
  EXPECT_TRUE(grammar.must_end());
}

TEST(Grammar, Regexes) {
  const FolderTokenizer tokenizer = bytes();
  for (const char* regex : {"[a-z]{3,8}@[a-z]{1,5}\\.(com|org)", "(yes|no)( he(llo)?)?", "a/b//c?", "[0-9]{1,4}",
                            "^ab?$", "(a|bc){2,5}\n?", "", "x*"}) {
    expect_answers(tokenizer, GrammarKind::kRegex, regex,
                   [&](const std::string& text) { return std::regex_match(text, std::regex(regex)); });
  }
}

// Sums of numbers with brackets.
bool is_sum(const std::string& text, size_t& at) {
  while (true) {
    if (at < text.size() && text[at] == '(') {
      if (!is_sum(text, ++at) || at == text.size() || text[at++] != ')') return false;
    } else {
      const size_t start = at;
      while (at < text.size() && isdigit(text[at])) ++at;
      if (at == start || at - start > 3) return false;
    }
    if (at == text.size() || text[at] != '+') return true;
    ++at;
  }
}

TEST(Grammar, Lark) {
  const char* sums = "start: sum\nsum: sum \"+\" term | term\nterm: NUMBER | \"(\" sum \")\"\nNUMBER: /[0-9]{1,3}/\n";
  expect_answers(bytes(), GrammarKind::kLark, sums, [](const std::string& text) {
    size_t at = 0;
    return is_sum(text, at) && at == text.size();
  });
  const char* call = R"x(start: NAME "(" %json {"type": "integer", "minimum": 1, "maximum": 3} ")"
NAME: "f" | "g")x";
  expect_answers(bytes(), GrammarKind::kLark, call,
                 [](const std::string& text) { return std::regex_match(text, std::regex("[fg]\\([123]\\)")); });
}

TEST(Grammar, MayEndAndMustEnd) {
  const FolderTokenizer tokenizer = bytes();
  Grammar grammar = compiled(tokenizer, GrammarKind::kRegex, "ab?");
  EXPECT_FALSE(grammar.may_end());
  EXPECT_EQ(allowed_ids(grammar), std::vector<int64_t>{'a'});
  ASSERT_TRUE(grammar.append('a').is_ok());
  EXPECT_TRUE(grammar.may_end());
  EXPECT_FALSE(grammar.must_end());
  EXPECT_EQ(allowed_ids(grammar), std::vector<int64_t>{'b'});
  EXPECT_TRUE(grammar.may_end());
  ASSERT_TRUE(grammar.append('b').is_ok());
  EXPECT_TRUE(grammar.may_end());
  EXPECT_TRUE(grammar.must_end());
  EXPECT_EQ(allowed_ids(grammar), std::vector<int64_t>{});
  EXPECT_FALSE(grammar.append('b').is_ok());
  ASSERT_TRUE(grammar.rewind(1).is_ok());
  EXPECT_FALSE(grammar.must_end());
  EXPECT_EQ(allowed_ids(grammar), std::vector<int64_t>{'b'});
  Grammar empty = compiled(tokenizer, GrammarKind::kRegex, "");
  EXPECT_TRUE(empty.may_end());
  EXPECT_TRUE(empty.must_end());
}

TEST(Grammar, IdsThatAreNotAllowed) {
  const FolderTokenizer tokenizer = bytes();
  Grammar grammar = compiled(tokenizer, GrammarKind::kRegex, "he.*");
  const std::vector<int64_t> before = allowed_ids(grammar);
  EXPECT_EQ(before, (std::vector<int64_t>{'h', 256}));
  EXPECT_EQ(grammar.append('e').message(), "the grammar does not allow the id 101 here");
  EXPECT_EQ(grammar.append(259).message(), "the grammar does not allow the id 259 here");  // </s>
  EXPECT_EQ(grammar.append(261).message(), "261 is not an id of the vocabulary of 261 tokens");
  EXPECT_EQ(grammar.append(-1).message(), "-1 is not an id of the vocabulary of 261 tokens");
  EXPECT_EQ(grammar.rewind(1).message(), "1 tokens cannot be taken back: 0 were appended");
  EXPECT_FALSE(grammar.rewind(-1).is_ok());
  EXPECT_EQ(allowed_ids(grammar), before);
  EXPECT_TRUE(grammar.append(256).is_ok());
}

// As when a text is checked: nobody asks what else could come.
TEST(Grammar, LongTextsWithoutMasks) {
  const FolderTokenizer tokenizer = bytes();
  const char* schema = R"({"type": "string", "pattern": "a.*b.*c", "maxLength": 40000})";
  Grammar grammar = compiled(tokenizer, GrammarKind::kJsonSchema, schema);
  ASSERT_TRUE(grammar.append('"').is_ok());
  for (int i = 0; i < 20000; ++i) {
    const Status status = grammar.append("abc"[i % 3]);
    ASSERT_TRUE(status.is_ok()) << i << ": " << status.message();
  }
  ASSERT_TRUE(grammar.append('"').is_ok());
  EXPECT_TRUE(grammar.must_end());
  ASSERT_TRUE(grammar.rewind(20000).is_ok());
  EXPECT_FALSE(grammar.may_end());
  EXPECT_TRUE(grammar.append('a').is_ok());
}

// Logits may be wider than the vocabulary, or narrower.
TEST(Grammar, Widths) {
  const FolderTokenizer tokenizer = bytes();
  for (const int64_t width : {300, 288, 261, 256, 99, 98}) {
    Result<Grammar> grammar = Grammar::compile(tokenizer, GrammarKind::kRegex, "[abc]|he", width);
    ASSERT_TRUE(grammar.is_ok()) << grammar.status().message();
    const auto words = grammar->allowed();
    ASSERT_TRUE(words.is_ok());
    EXPECT_EQ(words->size(), static_cast<size_t>((width + 31) / 32));
    std::vector<int64_t> expected;
    for (const int64_t id : {97, 98, 99, 104, 256}) {
      if (id < width) expected.push_back(id);
    }
    EXPECT_EQ(testing::ids_of(*words), expected) << width;
  }
  for (const int64_t width : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
    EXPECT_FALSE(Grammar::compile(tokenizer, GrammarKind::kRegex, "a", width).is_ok());
  }
}

// What comes after taking back is what comes after the ids that are left.
TEST(Grammar, RewindAndForkEqualFreshAppends) {
  const FolderTokenizer tokenizer = bytes();
  const Grammar start = compiled(tokenizer, GrammarKind::kJsonSchema, kSchemas[0].schema);
  std::mt19937 random(5);
  for (int i = 0; i < 5; ++i) {
    Grammar grammar = std::move(start.fork()).value();
    std::vector<std::vector<int64_t>> masks;
    std::vector<bool> ends;
    std::vector<int64_t> answer;
    while (true) {
      masks.push_back(allowed_ids(grammar));
      ends.push_back(grammar.may_end());
      if (masks.back().empty()) break;
      answer.push_back(masks.back()[random() % masks.back().size()]);
      ASSERT_TRUE(grammar.append(answer.back()).is_ok());
    }
    const auto expect_same = [&](Grammar& other, size_t at) {
      EXPECT_EQ(other.may_end(), ends[at]);
      EXPECT_EQ(allowed_ids(other), masks[at]) << at;
    };
    Grammar twin = std::move(grammar.fork()).value();
    for (size_t at = answer.size(); at > 0;) {
      const size_t back = 1 + random() % std::min<size_t>(at, 7);
      at -= back;
      ASSERT_TRUE(grammar.rewind(static_cast<int64_t>(back)).is_ok());
      expect_same(grammar, at);
      // A step aside and back.
      const std::vector<int64_t>& ids = masks[at];
      ASSERT_TRUE(grammar.append(ids[random() % ids.size()]).is_ok());
      ASSERT_TRUE(grammar.rewind(1).is_ok());
      expect_same(grammar, at);
    }
    expect_same(twin, answer.size());
    for (size_t at = 0; at < answer.size(); ++at) {
      expect_same(grammar, at);
      ASSERT_TRUE(grammar.append(answer[at]).is_ok());
    }
    expect_same(grammar, answer.size());
  }
}

TEST(Grammar, ForksOnThreads) {
  const FolderTokenizer tokenizer = bytes();
  const Grammar start = compiled(tokenizer, GrammarKind::kJsonSchema, kSchemas[0].schema);
  std::vector<Grammar> forks;
  for (int i = 0; i < 4; ++i) forks.push_back(std::move(start.fork()).value());
  std::vector<std::string> texts(forks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < forks.size(); ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(3);
      texts[i] = text_of(tokenizer, testing::walk(tokenizer, forks[i], random).value_or(std::vector<int64_t>()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  EXPECT_FALSE(texts[0].empty());
}

// Several threads ask for the first grammar of a tokenizer, which is gone before the grammars.
TEST(Grammar, OutlivesItsTokenizer) {
  std::vector<std::optional<Grammar>> grammars(4);
  {
    const FolderTokenizer tokenizer = bytes();
#ifdef __SANITIZE_THREAD__
    // It does not see the locks of the Rust library, so nothing may be left to build for the threads.
    compiled(tokenizer, GrammarKind::kRegex, "a");
#endif
    std::vector<std::thread> threads;
    for (std::optional<Grammar>& grammar : grammars) {
      threads.emplace_back([&] { grammar = compiled(tokenizer, GrammarKind::kRegex, "a"); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (std::optional<Grammar>& grammar : grammars) EXPECT_EQ(allowed_ids(*grammar), std::vector<int64_t>{'a'});
}

// Where the tokens lack bytes that the grammar wants.
TEST(Grammar, TextsThatTheTokensCannotWrite) {
  json model = testing::tokenizer_json({{"a", 0}, {"b", 1}}, json::array());
  model["decoder"] = {{"type", "Fuse"}};
  const FolderTokenizer tokenizer = testing::load_tokenizer(model);
  Grammar grammar = compiled(tokenizer, GrammarKind::kRegex, "ac|b");
  ASSERT_TRUE(grammar.append(0).is_ok());
  EXPECT_EQ(grammar.allowed().status().message(), "no token of the vocabulary goes on with a text that matches");
  ASSERT_TRUE(grammar.rewind(1).is_ok());
  EXPECT_EQ(allowed_ids(grammar), (std::vector<int64_t>{0, 1}));
  EXPECT_FALSE(Grammar::compile(tokenizer, GrammarKind::kRegex, "c", 2).is_ok());
}

}  // namespace
}  // namespace situ
