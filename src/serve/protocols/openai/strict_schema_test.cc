#include "serve/protocols/openai/strict_schema.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace situ::serve {
namespace {

void expect(const char* schema, const char* closed) {
  const std::optional<Json> made = strict_schema(Json::parse(schema));
  ASSERT_TRUE(made) << schema;
  // Objects are equal whatever the order of their keys.
  EXPECT_EQ(nlohmann::json::parse(made->dump()), nlohmann::json::parse(closed)) << made->dump();
}

TEST(StrictSchema, ClosesObjectsAtEachDepth) {
  expect(R"({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object"}},
             "b": {"anyOf": [{"properties": {}}, {"type": "null"}]}}})",
         R"({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "object",
             "additionalProperties": false}}, "b": {"anyOf": [{"properties": {}, "additionalProperties": false},
             {"type": "null"}]}}, "additionalProperties": false})");
  expect(R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": ["object", "null"]}}})",
         R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": ["object", "null"], "additionalProperties": false}}})");
  expect("true", "true");
}

TEST(StrictSchema, LeavesOpenWhatSaysSo) {
  expect(R"({"type": "object", "additionalProperties": true})", R"({"type": "object", "additionalProperties": true})");
  expect(R"({"type": "object", "additionalProperties": {"type": "object"}})",
         R"({"type": "object", "additionalProperties": {"type": "object", "additionalProperties": false}})");
  expect(R"({"type": "object", "patternProperties": {"^x": {"type": "object"}}})",
         R"({"type": "object", "patternProperties": {"^x": {"type": "object", "additionalProperties": false}}})");
}

TEST(StrictSchema, MergesAllOfFirst) {
  expect(R"({"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"b": {}}, "required": ["b"]}], "description": "d",
             "$defs": {"a": {"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]}}})",
         R"({"description": "d", "$defs": {"a": {"type": "object", "properties": {"a": {"type": "object",
             "additionalProperties": false}}, "required": ["a"], "additionalProperties": false}}, "type": "object",
             "properties": {"a": {"type": "object", "additionalProperties": false}, "b": {}}, "required": ["a", "b"],
             "additionalProperties": false})");
  expect(R"({"type": "object", "allOf": [{"properties": {"a": {"type": "object", "properties": {"x": {}}}}},
             {"properties": {"a": {"properties": {"y": {}}}}}]})",
         R"({"type": "object", "properties": {"a": {"type": "object", "properties": {"x": {}, "y": {}},
             "additionalProperties": false}}, "additionalProperties": false})");
  expect(
      R"({"$ref": "#/$defs/a", "properties": {"b": {}}, "$defs": {"a": {"type": "object", "properties": {"a": {}}}}})",
      R"({"properties": {"b": {}, "a": {}}, "type": "object", "additionalProperties": false, "$defs": {"a":
             {"type": "object", "properties": {"a": {}}, "additionalProperties": false}}})");
}

TEST(StrictSchema, SharesWithAlternatives) {
  expect(R"({"type": "object", "properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}, {"required": ["a"]}]})",
         R"({"anyOf": [{"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": false},
             {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": false}]})");
}

TEST(StrictSchema, RecursionThroughAllOf) {
  expect(R"({"$ref": "#/definitions/N", "definitions": {"N": {"type": "object", "properties": {"v": {},
             "next": {"title": "Next", "allOf": [{"$ref": "#/definitions/N"}]}}, "required": ["v", "w"]}}})",
         R"({"$ref": "#/definitions/N", "definitions": {"N": {"type": "object", "properties": {"v": {},
             "next": {"title": "Next", "$ref": "#/definitions/N"}, "w": true}, "required": ["v", "w"],
             "additionalProperties": false}}})");
}

TEST(StrictSchema, AlternativesBesideAlternatives) {
  const char* closed =
      R"({"anyOf": [{"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": false}]})";
  expect(R"({"allOf": [{"anyOf": [{"type": "object", "properties": {"a": {}}}]},
                       {"anyOf": [{"type": "object", "properties": {"b": {}}}]}]})",
         closed);
  expect(R"({"type": "object", "anyOf": [{"properties": {"a": {}}}], "oneOf": [{"properties": {"b": {}}}]})", closed);
}

TEST(StrictSchema, WhatIsListedIsNotClosed) {
  for (const char* same : {R"({"type": "object", "enum": [{"a": 1}]})", R"({"type": "object", "const": {"a": 1}})"})
    expect(same, same);
  expect(R"({"type": "object", "$ref": "#/$defs/p", "$defs": {"p": {"type": "object", "properties": {"n": {}}}}})",
         R"({"type": "object", "properties": {"n": {}}, "additionalProperties": false, "$defs": {"p": {"type": "object",
             "properties": {"n": {}}, "additionalProperties": false}}})");
}

TEST(StrictSchema, LeavesWhatCannotBeMerged) {
  const char* two = R"({"allOf": [{"type": "object", "properties": {"a": {}}, "additionalProperties": false},
                        {"type": "object", "properties": {"b": {}}}]})";
  const Json made = *strict_schema(Json::parse(two));
  EXPECT_FALSE(made.contains("additionalProperties") && made.contains("allOf") && made["properties"].contains("b"));
}

TEST(StrictSchema, EndsWhereAPartContainsItself) {
  EXPECT_FALSE(strict_schema(Json::parse(R"({"allOf": [{"$ref": "#"}], "minProperties": 1})")));
  std::string doubled = R"({"allOf": [{"$ref": "#/$defs/a0"}, {"$ref": "#/$defs/a0"}], "$defs": {)";
  for (int i = 0; i < 30; ++i) {
    const std::string next = R"({"$ref": "#/$defs/a)" + std::to_string(i + 1) + "\"}";
    doubled += "\"a" + std::to_string(i) + R"(": {"allOf": [)" + next + ", " + next + "]},";
  }
  EXPECT_FALSE(strict_schema(Json::parse(doubled + R"("a30": {"type": "object"}}})")));
  EXPECT_TRUE(strict_schema(Json::parse(R"({"type": "object", "properties": {"next": {"$ref": "#"}}})")));
}

}  // namespace
}  // namespace situ::serve
