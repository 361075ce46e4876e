// Bodies of the calls that are neither chat nor completions: their fields, for the parser, the description and the
// documentation.
#pragma once

#include <span>

#include "serve/body_field.h"
#include "serve/ignored.h"
#include "serve/json_body.h"

namespace situ::serve {

struct SmallBody {
  const char* path;
  const char* required;  // "": no field is
  std::span<const BodyField> fields;
};
std::span<const SmallBody> small_bodies();
// Null: the path has none.
const SmallBody* small_body(std::string_view path);
bool has_field(const SmallBody& known, std::string_view name);
// Puts the names that the body does not know to the ignored ones. Refusal: a value that is refused; a name that is not
// known, where the rules are strict.
std::optional<Refusal> check_fields(const SmallBody& known, const Json& body, bool strict, Ignored& ignored);

// Throw a Refusal that names the field.
[[noreturn]] void refuse_field(const std::string& name, const std::string& why,
                               Refusal::Kind kind = Refusal::Kind::kInvalid);
// null and absent: `otherwise`.
bool flag_of(const Json& body, const char* name, bool otherwise);
std::string text_of(const Json& body, const char* name);

}  // namespace situ::serve
