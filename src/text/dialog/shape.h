// What CallForm::shape says: which keys of a call's object have what.
#pragma once

#include <string>
#include <string_view>

namespace situ {

struct CallShape {
  explicit CallShape(std::string_view shape);
  std::string name_key, arguments_key, wrap_key;  // wrap_key: of the object that has both; "": the outermost
  bool name_is_key = false;
};

}  // namespace situ
