// A field of a body: parsers are made of tables of fields, and whoever describes the bodies reads them.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace situ::serve {

class BodyReader;

struct BodyField {
  // kUsed: what is asked for. kOption: how it is answered. kAccepted: no effect at any value. kRefused: no effect at
  // neutral values, refused at others, since another answer is asked for. kTemplate: a variable of the chat template,
  // without effect where the template does not read it.
  enum class Use { kUsed, kOption, kAccepted, kRefused, kTemplate };
  const char* name;
  int routes;  // of the protocol that the table belongs to; 0: the table is of one body
  Use use;
  const char* schema;  // JSON schema of its values but for null, which is as if it were absent; "{}": any
  const char* what;    // what it does, or why it is refused
  void (*read)(BodyReader&, const char* name, const nlohmann::ordered_json& value) = nullptr;  // of kUsed, kOption
  const char* neutral = "[]";  // a list of values without effect
};
// Whether the value is one of those that have no effect.
bool is_neutral(const BodyField& field, const nlohmann::ordered_json& value);

}  // namespace situ::serve
