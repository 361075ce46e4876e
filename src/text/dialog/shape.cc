#include "text/dialog/shape.h"

#include <nlohmann/json.hpp>

namespace situ {

CallShape::CallShape(std::string_view shape) {
  const nlohmann::ordered_json object = nlohmann::ordered_json::parse(shape, nullptr, false);
  const auto look = [&](const nlohmann::ordered_json& fields, const std::string& above) {
    for (const auto& [key, value] : fields.items()) {
      if (key == "$name") name_is_key = true;
      if (value == "$name") name_key = key, wrap_key = above;
      if (value == "$arguments") arguments_key = key;
    }
  };
  look(object, "");
  for (const auto& [key, value] : object.items())
    if (value.is_object()) look(value, key);
}

}  // namespace situ
