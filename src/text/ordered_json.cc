#include "text/ordered_json.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/json_file.h"

namespace situ {
namespace {

using Json = nlohmann::ordered_json;

// Makes values of what a reader of JSON tells.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const std::function<bool(std::string_view)>& skips) : skips_(skips) {}

  Json root;
  JsonFault fault;

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(int64_t value) override { return put(value); }
  bool number_unsigned(uint64_t value) override { return put(value); }
  bool number_float(double value, const std::string&) override { return put(value); }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // JSON has none
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    if (skipped_ > 0) return true;
    Open& object = open_.back();
    skip_next_ = open_.size() == 1 && skips_ && skips_(name);
    object.slot = &member(object, name);
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& why) override {
    fault = {position, dynamic_cast<const Json::out_of_range*>(&why) != nullptr};
    return false;
  }

 private:
  // An object or a list that is not at its end. Nothing is added to what holds it meanwhile, so that it stays in its
  // place.
  struct Open {
    Json* value;
    Json* slot = nullptr;                             // of an object: where the next value goes
    std::unordered_map<std::string, size_t> members;  // of an object of many keys
  };

  static Json& member(Open& object, const std::string& name) {
    constexpr size_t kFew = 16;
    auto& all = object.value->get_ref<Json::object_t&>();
    if (all.size() < kFew) {
      for (auto& [key, value] : all)
        if (key == name) return value;
    } else {
      if (object.members.empty())
        for (const auto& [key, value] : all) object.members.emplace(key, object.members.size());
      const auto [found, added] = object.members.emplace(name, all.size());
      if (!added) return (all.begin() + static_cast<std::ptrdiff_t>(found->second))->second;
    }
    return all.emplace_back(name, nullptr).second;
  }

  Json& place() {
    if (open_.empty()) return root;
    Open& outer = open_.back();
    return outer.value->is_object() ? *outer.slot : outer.value->get_ref<Json::array_t&>().emplace_back();
  }

  bool put(Json value) {
    if (skipped_ > 0) return true;
    Json& to = place();
    if (skip_next_)
      to = value.is_null() ? Json() : Json(true);
    else
      to = std::move(value);
    skip_next_ = false;
    return true;
  }
  bool open(Json empty) {
    if (skipped_ > 0 || skip_next_) {
      if (skipped_++ == 0) place() = true;
      skip_next_ = false;
      return true;
    }
    Json& to = place();
    to = std::move(empty);
    open_.push_back({&to, nullptr, {}});
    return true;
  }
  bool close() {
    if (skipped_ > 0)
      --skipped_;
    else
      open_.pop_back();
    return true;
  }

  const std::function<bool(std::string_view)>& skips_;
  std::vector<Open> open_;
  bool skip_next_ = false;
  int64_t skipped_ = 0;  // lists and objects that are open in a value that is skipped
};

}  // namespace

std::variant<Json, JsonFault> parse_ordered(std::string_view text,
                                            const std::function<bool(std::string_view key)>& skips) {
  Builder builder(skips);
  if (Json::sax_parse(text, &builder)) return std::move(builder.root);
  return builder.fault;
}

Json ordered_json_of(std::string_view text) {
  if (!check_json(text, "", kMostKeys).is_ok()) return Json(Json::value_t::discarded);
  std::variant<Json, JsonFault> read = parse_ordered(text);
  Json* const json = std::get_if<Json>(&read);
  return json ? std::move(*json) : Json(Json::value_t::discarded);
}

std::string shown(const Json& value) {
  constexpr size_t kMost = 100;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > kMost ? text.substr(0, kMost) + "..." : text;
}

}  // namespace situ
