#include "serve/protocols/openai/strict_schema.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "serve/media_files.h"

namespace situ::serve {
namespace {

constexpr int64_t kMostParts = 100'000;  // as src/text/rust/src/grammar/schema.rs
constexpr int kMostDepth = 100;

bool is_annotation(const std::string& key) {
  return key == "title" || key == "description" || key == "default" || key == "examples" || key == "$comment" ||
         key == "deprecated" || key == "readOnly" || key == "writeOnly" || key.starts_with("x-");
}
bool holds_definitions(const std::string& key) { return key == "$defs" || key == "definitions"; }

bool may_be_object(const Json& schema) {
  const auto type = schema.find("type");
  if (type == schema.end()) return schema.contains("properties");
  return type->is_array() ? std::find(type->begin(), type->end(), "object") != type->end() : *type == "object";
}
bool says_what_else(const Json& schema) {
  return schema.contains("additionalProperties") || schema.contains("patternProperties") ||
         schema.contains("unevaluatedProperties");
}

bool says_of_objects(const Json& schema) { return schema.contains("properties") || says_what_else(schema); }
bool is_open(const Json& schema) {
  return !schema.contains("patternProperties") && schema.value("additionalProperties", Json(true)) == true;
}

// Whether it says nothing but which other place says it.
bool is_reference(const Json& schema) {
  if (!schema.is_object() || !schema.contains("$ref")) return false;
  for (const auto& [key, value] : schema.items())
    if (key != "$ref" && !is_annotation(key)) return false;
  return true;
}

class Closer {
 public:
  explicit Closer(const Json& root) : root_(root) {}

  // Throws TooLarge.
  Json closed(const Json& schema, int depth = 0) {
    count(depth);
    if (!schema.is_object()) return schema;
    bool whole = true;  // all that says something of this object stands in one place
    Json one = distributed(merged(schema, depth, &whole), depth, &whole);
    for (auto& [key, value] : one.items()) {
      if (key == "properties" || key == "patternProperties" || holds_definitions(key)) {
        if (value.is_object())
          for (auto& [name, inner] : value.items()) inner = closed(inner, depth + 1);
      } else if (key == "items" || key == "prefixItems" || key == "additionalProperties" || key == "additionalItems" ||
                 ((key == "anyOf" || key == "oneOf") && whole)) {
        if (value.is_array())
          for (Json& inner : value) inner = closed(inner, depth + 1);
        else
          value = closed(value, depth + 1);
      }
    }
    const bool listed = one.contains("enum") || one.contains("const") || one.contains("$ref");
    if (whole && may_be_object(one) && !says_what_else(one) && !listed) close(one);
    return one;
  }

  struct TooLarge {};

 private:
  // What is required is named too.
  static void close(Json& schema) {
    if (const Json required = schema.value("required", Json()); required.is_array())
      for (const Json& name : required)
        if (name.is_string() && !schema["properties"].contains(name.get_ref<const std::string&>()))
          schema["properties"][name.get_ref<const std::string&>()] = true;
    schema["additionalProperties"] = false;
  }

  void count(int depth) {
    if (++parts_ > kMostParts || depth > kMostDepth) throw TooLarge();
  }

  // The place in this document that a $ref names; null: there is none.
  const Json* target(const Json& reference) const {
    if (!reference.is_string()) return nullptr;
    const std::string& text = reference.get_ref<const std::string&>();
    if (!text.starts_with("#")) return nullptr;
    try {
      const Json::json_pointer place(unescaped(text.substr(1)));
      return root_.contains(place) ? &root_[place] : nullptr;
    } catch (const Json::exception&) {
      return nullptr;
    }
  }

  // The schema with `allOf`, and with a $ref beside other keywords, merged into it. `whole`: false where a part cannot
  // be.
  Json merged(const Json& schema, int depth, bool* whole) {
    count(depth);
    if (!schema.is_object()) return schema;
    const auto all = schema.find("allOf");
    bool alone = true;  // annotations and definitions apart
    for (const auto& [key, value] : schema.items())
      alone = alone && (key == "$ref" || key == "allOf" || is_annotation(key) || holds_definitions(key));
    const bool refers = schema.contains("$ref"), beside = refers && (all != schema.end() || !alone);
    if (all == schema.end() && !beside) return schema;
    // {allOf: [{$ref}]} -> {$ref}: the place is closed by itself, and may contain this one.
    if (alone && !refers && all->is_array() && all->size() == 1 && is_reference((*all)[0])) {
      Json one = schema;
      one.erase("allOf");
      one["$ref"] = (*all)[0]["$ref"];
      return one;
    }
    Json one = Json::object();
    std::vector<Json> parts, left;
    for (const auto& [key, value] : schema.items()) {
      if (key == "$ref" && beside)
        parts.push_back({{"$ref", value}});
      else if (key == "allOf" && value.is_array())
        parts.insert(parts.end(), value.begin(), value.end());
      else
        one[key] = value;
    }
    for (const Json& part : parts) {
      const Json whole_part = resolved(part, depth + 1, whole);
      if (!merge(one, whole_part)) left.push_back(part);
    }
    if (!left.empty()) {
      one["allOf"] = left;
      *whole = false;
    }
    return one;
  }

  // What a part says itself, or the place that it names.
  Json resolved(const Json& part, int depth, bool* whole) {
    count(depth);
    const Json* const place = is_reference(part) ? target(part["$ref"]) : nullptr;
    return place ? resolved(*place, depth + 1, whole) : merged(part, depth, whole);
  }

  // {A, anyOf: [B, C]} -> {anyOf: [A and B, A and C]}, where A says something of objects.
  Json distributed(Json schema, int depth, bool* whole) {
    if (!schema.is_object() || !may_be_object(schema)) return schema;
    if (schema.contains("anyOf") && schema.contains("oneOf")) {
      const Json one_of = schema["oneOf"];
      schema.erase("oneOf");
      if (!merge_keyword(schema, "anyOf", one_of)) schema["oneOf"] = one_of;
    }
    const bool any = schema.contains("anyOf"), one = schema.contains("oneOf");
    if (!any && !one) return schema;
    const char* const key = any ? "anyOf" : "oneOf";
    Json outer = Json::object(), shared = Json::object(), alternatives = Json::array();
    for (const auto& [name, value] : schema.items())
      if (name != key) (is_annotation(name) || holds_definitions(name) ? outer : shared)[name] = value;
    bool good = any != one && schema[key].is_array();
    for (const Json& alternative : good ? schema[key] : Json::array()) {
      Json both = shared;
      good = good && merge(both, resolved(alternative, depth + 1, &good));
      alternatives.push_back(std::move(both));
    }
    if (!good) {
      *whole = false;
      return schema;
    }
    outer[key] = std::move(alternatives);
    return outer;
  }

  // Adds what `part` says. False: `one` is as it was, as no single schema says both.
  bool merge(Json& one, const Json& part) {
    if (part.is_boolean()) return part.get<bool>();
    if (!part.is_object()) return false;
    if (says_of_objects(one) && says_of_objects(part) && !(is_open(one) && is_open(part)) &&
        one.value("properties", Json()) != part.value("properties", Json()))
      return false;
    Json both = one;
    for (const auto& [key, value] : part.items())
      if (!merge_keyword(both, key, value)) return false;
    one = std::move(both);
    return true;
  }

  bool merge_keyword(Json& one, const std::string& key, const Json& value) {
    const auto own = one.find(key);
    if (own == one.end() || *own == value) {
      one[key] = value;
      return true;
    }
    if (is_annotation(key)) return true;
    constexpr size_t kMostPairs = 256;
    if ((key == "anyOf" || key == "oneOf") && own->is_array() && value.is_array() &&
        own->size() * value.size() <= kMostPairs) {  // one of these, and one of those
      Json pairs = Json::array();
      for (const Json& a : *own)
        for (const Json& b : value) pairs.push_back({{"allOf", Json::array({a, b})}});
      *own = std::move(pairs);
      return true;
    }
    if (key == "required" && own->is_array() && value.is_array()) {
      for (const Json& name : value)
        if (std::find(own->begin(), own->end(), name) == own->end()) own->push_back(name);
      return true;
    }
    if ((key == "properties" || holds_definitions(key)) && own->is_object() && value.is_object()) {
      for (const auto& [name, schema] : value.items()) {
        const auto before = own->find(name);
        if (before == own->end())
          (*own)[name] = schema;
        else if (*before != schema && holds_definitions(key))
          return false;
        else if (*before != schema)
          *before = {{"allOf", Json::array({*before, schema})}};
      }
      return true;
    }
    return false;
  }

  const Json& root_;
  int64_t parts_ = 0;
};

}  // namespace

std::optional<Json> strict_schema(const Json& schema) {
  try {
    return Closer(schema).closed(schema);
  } catch (const Closer::TooLarge&) {
    return std::nullopt;
  }
}

}  // namespace situ::serve
