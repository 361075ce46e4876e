#include "text/dialog/spelled_bodies.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "text/dialog/call_reader.h"
#include "text/dialog/marks.h"
#include "text/dialog/schema_parts.h"
#include "text/dialog/schemas.h"

namespace situ {
namespace {

using Json = nlohmann::ordered_json;
using Object = SchemaParts::Object;
using Property = SchemaParts::Property;

constexpr const char *kAnyName = "/[A-Za-z0-9_.-]{1,64}/", *kPythonName = "/[A-Za-z_][A-Za-z0-9_]{0,63}/";
constexpr size_t kMostSource = 1 << 20;  // bytes; what compiles a grammar takes less
constexpr int kDeepestValue = 64;

Status too_large() { return Status::error(Code::kInvalidArgument, "the schema is too large"); }

// A rule for what comes when an item stands before, and one for when none does.
struct Item {
  std::string rule;
  bool required = false;
};

// Items in their order, with a comma between two.
std::string comma_separated(Lark& lark, const std::vector<Item>& items, const std::string& comma) {
  std::string behind = "", first = "";
  for (auto item = items.rbegin(); item != items.rend(); ++item) {
    const std::string rest = behind.empty() ? "" : " " + behind;
    const std::string with = lark.rule(Lark::literal(comma) + " " + item->rule + rest);
    const std::string alone = lark.rule(item->rule + rest);
    const std::string left_first = first;
    behind = item->required ? with : behind.empty() ? with + "?" : lark.rule(with + " | " + behind);
    first = item->required ? alone : left_first.empty() ? alone + "?" : lark.rule(alone + " | " + left_first);
  }
  return first;
}

// Any number of items.
std::string any_number(const std::string& item, const std::string& comma) {
  return "(" + item + " (" + Lark::literal(comma) + " " + item + ")*)?";
}

// -- tags

class Tagged {
 public:
  Tagged(Lark& lark, const CallForm& form, const Json& schema)
      : lark_(lark), form_(form), schema_(schema), parts_(schema) {}

  Result<std::string> body(const Tool& tool, const Object& object) {
    std::string body = Lark::literal(tool.name + form_.name_close);
    for (const Property& p : object.properties) {
      if (!tagged_key_reads(form_, p.name))
        return Status::error(Code::kInvalidArgument,
                             "the property " + Json(p.name).dump() + " cannot be written between this model's tags");
      const std::string open = Lark::literal(form_.key_open + p.name + form_.key_close);
      body += " " + lark_.rule(open + " " + value(*p.schema)) + (p.required ? "" : "?");
      if (lark_.size() > kMostSource || parts_.too_large()) return too_large();
    }
    if (object.properties.empty() && !object.lists && object.others)
      body += " " +
              lark_.rule(Lark::literal(form_.key_open) + " " + lark_.lexeme(kAnyName) + " " +
                         Lark::literal(form_.key_close) + " " + value(*object.others)) +
              "*";
    return body;
  }

 private:
  // A text, which the first mark ends, as readers have it: white space before the mark is the text's.
  std::string text() {
    const std::string_view mark = form_.value_close, whole = trimmed(mark);
    const std::string behind = lark_.mark(trimmed_left(mark).substr(whole.size()));
    return lark_.text_to(whole) + (behind.empty() ? "" : " ") + behind;
  }

  std::string value(const Json& part) {
    const ValueForm form = parts_.value(part);
    std::string listed;
    for (const std::string& one : form.listed)
      if (one.find(trimmed(form_.value_close)) == std::string::npos)
        listed += (listed.empty() ? "" : " | ") + Lark::literal(one);
    if (form.kind != ValueForm::Kind::kJson && form.listed.empty()) return text();
    return lark_.rule(listed.empty() ? json_rule(part, schema_) : listed) + " " + lark_.mark(form_.value_close);
  }

  Lark& lark_;
  const CallForm& form_;
  const Json& schema_;
  SchemaParts parts_;
};

// -- Python

std::string python_value(Lark& lark, SchemaParts& parts, const Json& part, const Json& root) {
  SchemaParts::Leaves leaves;
  if (!parts.leaves(part, leaves)) return lark.rule(json_rule(part, root));
  unsigned types = kNoType, free = kNoType;
  for (const Json* leaf : leaves) types |= SchemaParts::types_of(*leaf), free |= SchemaParts::free_types_of(*leaf);
  if (types == kBooleans && free == kBooleans) return "(\"True\" | \"False\")";
  if (types == kNulls) return "\"None\"";
  const bool null = (types & kNulls) != 0 && (free & kNulls) != 0 && types != kAllTypes;
  return null ? "(" + lark.rule(json_rule(part, root)) + " | \"None\")" : lark.rule(json_rule(part, root));
}

Result<std::string> python_body(Lark& lark, const Tool& tool, const Json& schema, const Object& object) {
  SchemaParts parts(schema);
  std::vector<Item> items;
  for (const Property& p : object.properties) {
    if (!bare_key_reads(p.name, true))
      return Status::error(Code::kInvalidArgument,
                           "the property " + Json(p.name).dump() + " cannot be an argument of a call in Python");
    items.push_back(
        {lark.rule(Lark::literal(p.name + "=") + " " + python_value(lark, parts, *p.schema, schema)), p.required});
    if (lark.size() > kMostSource || parts.too_large()) return too_large();
  }
  std::string arguments = comma_separated(lark, items, ", ");
  if (items.empty() && !object.lists && object.others)
    arguments = any_number(
        lark.rule(lark.lexeme(kPythonName) + " \"=\" " + python_value(lark, parts, *object.others, schema)), ", ");
  return Lark::literal(tool.name + "(") + " " + arguments + (arguments.empty() ? "" : " ") + "\")\"";
}

// -- values between braces of a model's own: texts between marks, keys without; JSON where these cannot say it

class Literals {
 public:
  Literals(Lark& lark, std::string_view quote, const Json& root)
      : lark_(lark), quote_(quote), root_(root), parts_(root) {}

  std::string value(const Json& part, int depth = 0) {
    if (depth > kDeepestValue || large()) return json(part);
    const auto [made, added] = rules_.try_emplace(&part);
    if (!added) return made->second;
    made->second = lark_.name();
    const std::string name = made->second;
    lark_.define(name, alternatives(part, depth));
    return name;
  }

  // `schema`: of the arguments.
  std::string object(const Json& schema, int depth) {
    const Object object = parts_.object(schema);
    const auto bare = [](const Property& p) { return bare_key_reads(p.name, false); };
    if (!object.fault.empty() || !std::all_of(object.properties.begin(), object.properties.end(), bare))
      return json(schema);
    std::vector<Item> items;
    for (const Property& p : object.properties) {
      if (large()) break;
      items.push_back({lark_.rule(Lark::literal(p.name + ":") + " " + value(*p.schema, depth + 1)), p.required});
    }
    std::string inside = comma_separated(lark_, items, ",");
    if (items.empty() && !object.lists && object.others)
      inside =
          any_number(lark_.rule(lark_.lexeme(kAnyName) + " \":\" " + value(any_or(*object.others), depth + 1)), ",");
    return lark_.rule("\"{\" " + inside + (inside.empty() ? "" : " ") + "\"}\"");
  }

  bool large() const { return lark_.size() > kMostSource || parts_.too_large(); }

 private:
  std::string json(const Json& part) { return lark_.rule(large() ? "\"\"" : json_rule(part, root_)); }
  std::string text() { return lark_.rule(lark_.mark(quote_) + " " + lark_.text_to(quote_)); }
  // One part for all that may be anything: made ones are many.
  const Json& any_or(const Json& part) const { return part == true || part == Json::object() ? any_ : part; }

  std::string alternatives(const Json& part, int depth) {
    SchemaParts::Leaves leaves;
    if (!parts_.leaves(part, leaves) || leaves.empty()) return json(part);
    std::string all;
    for (const Json* leaf : leaves) {
      const std::string one = leaf == &part ? of_leaf(*leaf, depth) : value(*leaf, depth + 1);
      if (!one.empty()) all += (all.empty() ? "" : " | ") + one;
    }
    return all.empty() ? json(part) : all;
  }

  std::string of_leaf(const Json& leaf, int depth) {
    const unsigned types = SchemaParts::types_of(leaf), free = SchemaParts::free_types_of(leaf);
    const Json listed = SchemaParts::listed(leaf);
    if (listed.is_array()) return of_listed(leaf, listed);
    std::string all;
    const auto add = [&](const std::string& one) { all += (all.empty() ? "" : " | ") + one; };
    const auto add_json = [&](const char* type) {
      Json schema = leaf.is_object() ? leaf : Json::object();
      schema["type"] = type;
      if (types != kNoType) add(json(schema));
    };
    if ((types & kStrings) != 0) (free & kStrings) != 0 ? add(text()) : add_json("string");
    if ((types & kNumbers) != 0)
      add_json("number");
    else if ((types & kIntegers) != 0)
      add_json("integer");
    if ((types & kBooleans) != 0) add_json("boolean");
    if ((types & kNulls) != 0) add_json("null");
    if ((types & kObjects) != 0) {
      if ((free & kObjects) != 0)
        add(object(kAnyObject, depth));
      else
        add(object(of_type(leaf, "object"), depth));
    }
    if ((types & kLists) != 0) add(list(leaf, depth));
    return all;
  }

  std::string of_listed(const Json& leaf, const Json& listed) {
    std::string all;
    const auto readable = [&](const Json& one) {
      return !one.is_structured() &&
             (!one.is_string() || one.get_ref<const std::string&>().find(quote_) == std::string::npos);
    };
    const bool texts = SchemaParts::free_types_of(leaf) == kNoType && leaf.size() <= (leaf.contains("type") ? 2u : 1u);
    if (!texts || !std::all_of(listed.begin(), listed.end(), readable)) return json(leaf);
    for (const Json& one : listed) {
      const std::string as_json = one.dump();
      if ((SchemaParts::types_of(leaf) & type_of_json(as_json)) == 0) continue;
      const std::string spelled =
          one.is_string() ? std::string(quote_) + one.get<std::string>() + std::string(quote_) : as_json;
      all += (all.empty() ? "" : " | ") + Lark::literal(spelled);
    }
    return all.empty() ? json(leaf) : all;
  }

  // The same part for objects alone.
  const Json& of_type(const Json& leaf, const char* type) {
    if (leaf.contains("type") && leaf["type"] == type) return leaf;
    const auto [made, added] = narrowed_.try_emplace({&leaf, type}, leaf);
    if (added) made->second["type"] = type;
    return made->second;
  }

  std::string list(const Json& leaf, int depth) {
    const Json* items = &any_;
    size_t least = 0;
    std::optional<size_t> most;
    if (leaf.is_object()) {
      for (const char* word : {"prefixItems", "additionalItems", "uniqueItems", "contains"})
        if (leaf.contains(word)) return json(of_type(leaf, "array"));
      if (const auto found = leaf.find("items"); found != leaf.end()) items = &any_or(*found);
      for (const char* word : {"minItems", "maxItems"})
        if (leaf.contains(word) && (!leaf[word].is_number_unsigned() || leaf[word] > 1000))
          return json(of_type(leaf, "array"));
      least = leaf.value("minItems", size_t{0});
      if (leaf.contains("maxItems")) most = leaf["maxItems"].get<size_t>();
    }
    if (items->is_array() || (most && *most < std::max<size_t>(least, 1))) return json(of_type(leaf, "array"));
    const std::string item = value(*items, depth + 1);
    const size_t others = least > 0 ? least - 1 : 0;
    const std::string more = !most && others == 0 ? "*"
                                                  : "{" + std::to_string(others) + "," +
                                                        (most ? std::to_string(*most - 1) : std::string()) + "}";
    const std::string all = most == size_t{1} ? item : item + " (\",\" " + item + ")" + more;
    return lark_.rule("\"[\" " + (least > 0 ? all : "(" + all + ")?") + " \"]\"");
  }

  inline static const Json kAnyObject = {{"type", "object"}};
  const Json any_ = true;
  Lark& lark_;
  const std::string_view quote_;
  const Json& root_;
  SchemaParts parts_;
  std::map<const Json*, std::string> rules_;
  std::map<std::pair<const Json*, std::string>, Json> narrowed_;
};

}  // namespace

Result<std::string> spelled_body(Lark& lark, const CallForm& form, const Tool& tool, const Json& schema) {
  if (form.kind == CallForm::Kind::kLiterals) {
    Literals literals(lark, form.text_quote, schema);
    const std::string object = literals.object(schema, 0);
    if (literals.large()) return too_large();
    return Lark::literal(tool.name) + " " + object;
  }
  SchemaParts parts(schema);
  const Object object = parts.object(schema);
  if (parts.too_large()) return too_large();
  const bool tags = form.kind == CallForm::Kind::kTagged;
  if (!object.fault.empty())
    return Status::error(Code::kInvalidArgument, object.fault + " for the arguments of a call that is written " +
                                                     (tags ? "as tags" : "in Python"));
  return tags ? Tagged(lark, form, schema).body(tool, object) : python_body(lark, tool, schema, object);
}

}  // namespace situ
