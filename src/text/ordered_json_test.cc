#include "text/ordered_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace situ {
namespace {

using Json = nlohmann::ordered_json;

TEST(OrderedJson, IsWhatTheLibraryReads) {
  std::string many = "{";
  for (int i = 0; i < 60; ++i) many += (i ? ",\"k" : "\"k") + std::to_string(i % 40) + "\":" + std::to_string(i);
  for (const std::string& text :
       {std::string("null"), std::string("[]"), std::string("{}"), std::string("-3"),
        std::string("18446744073709551615"),
        std::string(R"({"b": 1, "a": {"c": [1, {"d": null}, []], "b": "x"}, "b": {"z": 2.5}})"), many + "}",
        std::string(R"([{"a": [{"a": {"a": true}}]}, "\u00e9\ud83d\ude00"])")})
    EXPECT_EQ(std::get<Json>(parse_ordered(text)).dump(), Json::parse(text).dump()) << text;
}

TEST(OrderedJson, SaysWhereItEnds) {
  const auto fault = [](const char* text) { return std::get<JsonFault>(parse_ordered(text)); };
  EXPECT_EQ(fault("[1, 2").byte, 6u);
  EXPECT_EQ(fault("[1, x]").byte, 5u);
  EXPECT_FALSE(fault("[1] 2").too_large);
  EXPECT_TRUE(fault("[1e999]").too_large);
}

TEST(OrderedJson, SkipsValuesOfTheOutermostObject) {
  const auto skips = [](std::string_view key) { return key.starts_with("x"); };
  const auto read = [&](const char* text) { return std::get<Json>(parse_ordered(text, skips)).dump(); };
  EXPECT_EQ(read(R"({"a": 1, "x": {"x": [1, {}]}, "b": {"x": 2}, "xn": null, "xs": "t", "c": 3})"),
            R"({"a":1,"x":true,"b":{"x":2},"xn":null,"xs":true,"c":3})");
  EXPECT_EQ(read(R"({"x": [[]], "x": null, "a": [{"x": 1}]})"), R"({"x":null,"a":[{"x":1}]})");
}

}  // namespace
}  // namespace situ
