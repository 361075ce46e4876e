#include "text/dialog/schema_parts.h"

#include <algorithm>
#include <initializer_list>
#include <map>

#include "text/dialog/literal_scanner.h"

namespace situ {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostDepth = 64;

const std::initializer_list<const char*> kOfTexts = {"pattern", "minLength", "maxLength", "format"},
                                         kOfNumbers = {"minimum",          "maximum",    "exclusiveMinimum",
                                                       "exclusiveMaximum", "multipleOf", "format"},
                                         kOfLists = {"items",    "prefixItems", "additionalItems", "minItems",
                                                     "maxItems", "uniqueItems", "contains"},
                                         kOfObjects = {"properties",    "required",      "additionalProperties",
                                                       "minProperties", "maxProperties", "patternProperties",
                                                       "propertyNames"},
                                         kOfAll = {"type",
                                                   "enum",
                                                   "const",
                                                   "anyOf",
                                                   "oneOf",
                                                   "allOf",
                                                   "not",
                                                   "if",
                                                   "then",
                                                   "else",
                                                   "x-guidance",
                                                   "dependentRequired",
                                                   "dependentSchemas"};

bool has_any(const Json& schema, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [&](const char* word) { return schema.contains(word); });
}

// Whether it says anything but where else to look.
bool restricts(const Json& schema, std::initializer_list<const char*> but = {}) {
  const auto in = [&](std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(), [&](const char* word) {
      const bool left_out = std::any_of(but.begin(), but.end(), [&](std::string_view w) { return w == word; });
      return !left_out && schema.contains(word);
    });
  };
  return in(kOfTexts) || in(kOfNumbers) || in(kOfLists) || in(kOfObjects) || in(kOfAll);
}

unsigned named(const Json& name) {
  if (name == "string") return kStrings;
  if (name == "number") return kNumbers | kIntegers;
  if (name == "integer") return kIntegers;
  if (name == "boolean") return kBooleans;
  if (name == "null") return kNulls;
  if (name == "object") return kObjects;
  return name == "array" ? kLists : kNoType;
}

}  // namespace

JsonTypes type_of_json(std::string_view json) {
  if (json.empty()) return kNoType;
  switch (json[0]) {
    case '"':
      return kStrings;
    case '{':
      return kObjects;
    case '[':
      return kLists;
    case 't':
    case 'f':
      return kBooleans;
    case 'n':
      return kNulls;
    default:
      return json.find_first_of(".eE") == std::string_view::npos ? kIntegers : kNumbers;
  }
}

const Json* SchemaParts::target(const Json& part) const {
  const auto ref = part.find("$ref");
  if (ref == part.end() || !ref->is_string()) return nullptr;
  const std::string& text = ref->get_ref<const std::string&>();
  if (!text.starts_with('#') || text.find('%') != std::string::npos) return nullptr;
  try {
    return &root_.at(Json::json_pointer(text.substr(1)));
  } catch (const Json::exception&) {
    return nullptr;
  }
}

unsigned SchemaParts::types_of(const Json& leaf) {
  if (!leaf.is_object()) return leaf == false ? kNoType : kAllTypes;
  const auto type = leaf.find("type");
  if (type == leaf.end()) return kAllTypes;
  if (!type->is_array()) return named(*type);
  unsigned all = kNoType;
  for (const Json& name : *type) all |= named(name);
  return all;
}

unsigned SchemaParts::free_types_of(const Json& leaf) {
  if (!leaf.is_object()) return types_of(leaf);
  if (leaf.contains("enum") || leaf.contains("const")) return kNoType;
  unsigned types = types_of(leaf);
  if (has_any(leaf, kOfTexts)) types &= ~unsigned{kStrings};
  if (has_any(leaf, kOfNumbers)) types &= ~(unsigned{kNumbers} | kIntegers);
  if (has_any(leaf, kOfLists)) types &= ~unsigned{kLists};
  if (has_any(leaf, kOfObjects)) types &= ~unsigned{kObjects};
  return types;
}

Json SchemaParts::listed(const Json& leaf) {
  if (!leaf.is_object()) return nullptr;
  if (const auto value = leaf.find("const"); value != leaf.end()) return Json::array({*value});
  const auto values = leaf.find("enum");
  return values != leaf.end() && values->is_array() ? *values : Json(nullptr);
}

bool SchemaParts::gather(const Json& part, int depth, std::set<const Json*>& seen, Leaves& all) {
  if (--left_ < 0 || depth > kMostDepth) return false;
  if (!seen.insert(&part).second) return true;  // a way that was gone
  if (!part.is_object()) {
    all.push_back(&part);
    return part.is_boolean();
  }
  if (part.contains("$ref")) {
    const Json* to = target(part);
    return to && !restricts(part) && gather(*to, depth + 1, seen, all);
  }
  if (has_any(part, {"not", "if", "x-guidance", "dependentRequired", "dependentSchemas"})) return false;
  for (const char* word : {"anyOf", "oneOf", "allOf"}) {
    const auto parts = part.find(word);
    if (parts == part.end()) continue;
    if (!parts->is_array() || parts->empty() || restricts(part, {word})) return false;
    if (word == std::string_view("allOf") && parts->size() > 1) return false;
    unsigned types = kNoType;
    for (const Json& one : *parts) {
      const size_t before = all.size();
      if (!gather(one, depth + 1, seen, all)) return false;
      if (word != std::string_view("oneOf")) continue;
      // Exactly one of them: their types have to tell them apart.
      if (all.size() == before) return false;
      unsigned own = kNoType;
      for (size_t i = before; i < all.size(); ++i) own |= types_of(*all[i]);
      if ((types & own) != kNoType) return false;
      types |= own;
    }
    return true;
  }
  all.push_back(&part);
  return true;
}

bool SchemaParts::leaves(const Json& schema, Leaves& all) {
  std::set<const Json*> seen;
  return gather(schema, 0, seen, all);
}

ValueForm SchemaParts::value(const Json& schema) {
  using Kind = ValueForm::Kind;
  Leaves all;
  if (!leaves(schema, all)) return {Kind::kJson};
  unsigned types = kNoType, free = kNoType;
  std::vector<std::string> values;
  bool scalars = true, lists = true;  // lists: each leaf lists its values
  for (const Json* leaf : all) {
    types |= types_of(*leaf);
    free |= free_types_of(*leaf);
    const Json own = listed(*leaf);
    lists = lists && (own.is_array() || (types_of(*leaf) & ~(unsigned{kNulls} | kBooleans)) == kNoType);
    if (own.is_array() && has_any(*leaf, kOfTexts)) return {Kind::kJson};
  }
  if ((types & kStrings) == 0) return {Kind::kJson};
  if ((free & kStrings) != 0) {
    // Whatever the text is, it is allowed: what reads as something else must be allowed as that.
    const unsigned others = types & ~unsigned{kStrings};
    if ((others & ~free) != 0) return {Kind::kJson};
    return others == kNoType ? ValueForm{Kind::kText, kStrings} : ValueForm{Kind::kEither, others};
  }
  if (!lists) return {Kind::kJson};
  unsigned others = kNoType;
  for (const Json* leaf : all) {
    Json own = listed(*leaf);
    if (!own.is_array()) {
      own = Json::array();
      if ((types_of(*leaf) & kNulls) != 0) own.push_back(nullptr);
      if ((types_of(*leaf) & kBooleans) != 0) own.insert(own.end(), {true, false});
    }
    for (const Json& one : own) {
      const std::string text = one.is_string() ? one.get<std::string>() : one.dump();
      scalars = scalars && !one.is_structured() && !one.is_number_float();
      if ((types_of(*leaf) & type_of_json(one.is_string() ? "\"" : text)) == 0) continue;
      if (!one.is_string()) others |= type_of_json(text);
      values.push_back(text);
      // As a text it would not be read.
      if (one.is_string() && types != kStrings && !json_of_literal(text).empty()) return {Kind::kJson};
    }
  }
  if (!scalars || values.empty()) return {Kind::kJson};
  return others == kNoType ? ValueForm{Kind::kText, kStrings, values} : ValueForm{Kind::kEither, others, values};
}

void SchemaParts::gather_object(const Json& part, int depth, std::vector<const Json*>& parts, std::string& fault) {
  const auto refuse = [&](const std::string& why) {
    if (fault.empty()) fault = why;
  };
  if (--left_ < 0 || depth > kMostDepth) return refuse("its references are nested too deep");
  if (part == true || std::find(parts.begin(), parts.end(), &part) != parts.end()) return;
  if (!part.is_object()) return refuse("no object is allowed");
  parts.push_back(&part);
  if (part.contains("$ref")) {
    const Json* to = target(part);
    if (!to) return refuse("the reference " + part["$ref"].dump() + " leads to nothing");
    gather_object(*to, depth + 1, parts, fault);
  }
  if (const auto all = part.find("allOf"); all != part.end() && all->is_array())
    for (const Json& one : *all) gather_object(one, depth + 1, parts, fault);
  for (const char* word : {"anyOf", "oneOf", "not", "if", "enum", "const", "patternProperties", "propertyNames",
                           "dependentRequired", "dependentSchemas", "dependencies", "maxProperties", "minProperties",
                           "unevaluatedProperties", "x-guidance", "$dynamicRef", "$recursiveRef"})
    if (part.contains(word) && !(word == std::string_view("minProperties") && part[word] == 0))
      refuse("the keyword '" + std::string(word) + "' is not supported");
  if ((types_of(part) & kObjects) == 0) refuse("no object is allowed");
  const auto expect = [&](const char* word, const auto& good) {
    const auto found = part.find(word);
    if (found != part.end() && !good(*found))
      refuse("the keyword '" + std::string(word) + "' has a value of another type");
  };
  const auto is_text = [](const Json& name) { return name.is_string(); };
  expect("properties", [](const Json& value) { return value.is_object(); });
  expect("additionalProperties", [](const Json& value) { return value.is_object() || value.is_boolean(); });
  expect("required",
         [&](const Json& value) { return value.is_array() && std::all_of(value.begin(), value.end(), is_text); });
}

SchemaParts::Object SchemaParts::object(const Json& schema) {
  Object object;
  std::vector<const Json*> parts;
  gather_object(schema, 0, parts, object.fault);
  std::map<std::string, size_t> places;
  std::set<std::string> required;
  const Json &any = made_.emplace_back(true), *others = &any;
  for (const Json* part : parts) {
    const auto listed = part->find("properties");
    const bool lists = listed != part->end() && listed->is_object();
    object.lists = object.lists || lists;
    for (auto item = lists ? listed->begin() : listed; lists && item != listed->end(); ++item) {
      const auto [place, added] = places.try_emplace(item.key(), object.properties.size());
      if (added)
        object.properties.push_back({item.key(), &*item});
      else if (Property& p = object.properties[place->second]; *p.schema != *item)
        p.schema = &made_.emplace_back(Json{{"allOf", Json::array({*p.schema, *item})}});
    }
    if (const auto names = part->find("required"); names != part->end() && names->is_array())
      for (const Json& name : *names)
        if (name.is_string()) required.insert(name.get<std::string>());
    if (const auto more = part->find("additionalProperties"); more != part->end() && *more != true) others = &*more;
  }
  for (const std::string& name : required)
    if (!places.contains(name)) places[name] = object.properties.size(), object.properties.push_back({name, others});
  for (Property& p : object.properties) {
    p.required = required.contains(p.name);
    if (p.required && *p.schema == false && object.fault.empty())
      object.fault = "the property " + Json(p.name).dump() + " is required and has no value that is allowed";
  }
  // It speaks of the properties of its own part alone.
  for (const Json* part : parts) {
    const auto more = part->find("additionalProperties");
    if (more == part->end() || *more == true || parts.size() == 1) continue;
    const auto own = part->find("properties");
    for (const auto& [name, place] : places)
      if (own == part->end() || !own->contains(name))
        object.fault = "the keyword 'additionalProperties' beside properties of other parts is not supported";
  }
  object.others = *others == false ? nullptr : others;
  std::erase_if(object.properties, [](const Property& p) { return *p.schema == false && !p.required; });
  return object;
}

}  // namespace situ
