// A schema taken apart for forms that do not write arguments as JSON: the properties of an object, and how a value is
// written where texts need no quotes. Grammars and readers ask the same questions here, and get the same answers.
#pragma once

#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace situ {

// Types of JSON, as bits.
enum JsonTypes : unsigned {
  kNoType = 0,
  kStrings = 1,
  kNumbers = 2,  // whole ones too
  kIntegers = 4,
  kBooleans = 8,
  kNulls = 16,
  kObjects = 32,
  kLists = 64,
  kAllTypes = 127,
};
// The type of what a text of JSON has.
JsonTypes type_of_json(std::string_view json);

// How a value is written.
struct ValueForm {
  enum class Kind {
    kText,    // a text as it stands
    kJson,    // JSON, texts between quotes
    kEither,  // what reads as JSON of `types` is that, anything else is a text as it stands
  };
  Kind kind = Kind::kEither;
  unsigned types = kAllTypes;
  // Of kText and kEither: the only values, as they are written; none: any text.
  std::vector<std::string> listed = {};
};

class SchemaParts {
 public:
  using Json = nlohmann::ordered_json;
  // `root`: where references look. It must outlive the parts.
  explicit SchemaParts(const Json& root) : root_(root) {}
  SchemaParts(const SchemaParts&) = delete;
  SchemaParts& operator=(const SchemaParts&) = delete;

  struct Property {
    std::string name;
    const Json* schema = nullptr;
    bool required = false;
  };
  struct Object {
    std::vector<Property> properties;
    bool lists = false;            // it has the keyword `properties`
    const Json* others = nullptr;  // the values of other names; null: there are none
    std::string fault = {};        // why a list of properties does not say what the object may be; "": it does
  };
  Object object(const Json& schema);
  ValueForm value(const Json& schema);

  // A value is one of these: each a schema without references and alternatives. False: it is not that simple.
  using Leaves = std::vector<const Json*>;
  bool leaves(const Json& schema, Leaves& all);
  // The types that a leaf allows; without those whose values it restricts in any way.
  static unsigned types_of(const Json& leaf);
  static unsigned free_types_of(const Json& leaf);
  // The values that a leaf lists; null: it lists none.
  static Json listed(const Json& leaf);

  // More parts were looked at than a schema may have.
  bool too_large() const { return left_ < 0; }

 private:
  bool gather(const Json& part, int depth, std::set<const Json*>& seen, Leaves& all);
  void gather_object(const Json& part, int depth, std::vector<const Json*>& parts, std::string& fault);
  // Where the reference of this part leads; null: nowhere.
  const Json* target(const Json& part) const;

  const Json& root_;
  std::deque<Json> made_;
  int64_t left_ = 50'000;
};

}  // namespace situ
