// Reads the settings of a generation, the caller's first, then those of the folder's configuration, and checks them.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "pipelines/generation_config.h"

namespace situ {

std::string text_of(double value);
std::string text_of(int64_t value);

// What a setting may be. Scores are float32, so what goes into them must be finite there, and a divisor not 0.
struct Range {
  const char* words;
  bool (*holds)(double);
  bool integer = false, in_float = false;  // the second: any number that float32 holds
  // What `value`, which is none, should be: one that is in the range but for float32 is told that.
  std::string instead_of(double value) const;
};
inline constexpr double kMostCount = int64_t{1} << 30;
inline const Range kFinite{"a finite number", [](double x) { return std::isfinite(static_cast<float>(x)); }};
inline const Range kNotNegative{"a number of at least 0",
                                [](double x) { return x >= 0 && std::isfinite(static_cast<float>(x)); }, false, true};
inline const Range kPositive{"a number above 0",
                             [](double x) { return static_cast<float>(x) > 0 && std::isfinite(static_cast<float>(x)); },
                             false, true};
inline const Range kShare{"a number above 0 and at most 1", [](double x) { return x > 0 && x <= 1; }};
inline const Range kRatio{"a number from 0 to 1", [](double x) { return x >= 0 && x <= 1; }};
inline const Range kCount{"an integer from 0 to 1073741824", [](double x) { return x >= 0 && x <= kMostCount; }, true};

inline const Range kLength{"an integer from 1 to 1073741824", [](double x) { return x >= 1 && x <= kMostCount; }, true};
inline const Range kBeamCount{"an integer from 1 to 256", [](double x) { return x >= 1 && x <= 256; }, true};

// Reads settings one after the other and remembers the first error.
struct Settings {
  const GenerationConfig* config;  // says what the caller does not; null: nothing does
  int64_t vocabulary = 0;
  Status status = Status::ok();

  void refuse(Status why) {
    if (status.is_ok()) status = std::move(why);
  }
  template <typename T>
  void check(const std::string& name, T value, const Range& range) {
    if (!range.holds(static_cast<double>(value)))
      refuse(Status::wrong_option(
          name, name + " should be " + range.instead_of(static_cast<double>(value)) + ", is " + text_of(value)));
  }
  void check_id(const std::string& name, int64_t id);
  void check_ids(const std::string& name, const std::vector<int64_t>& ids) {
    for (const int64_t id : ids) check_id(name, id);
  }
  // What the configuration has, null included; nullptr: nothing.
  const ConfigField* configured(const char* field) const { return config ? config->find(field) : nullptr; }
  // The caller's value, else the configuration's, else `fallback`. null in a configuration means `off`, as in
  // transformers.
  template <typename T>
  T number(const char* name, const std::optional<T>& given, const Range& range, const char* field, T fallback, T off) {
    if (given) {
      check(name, *given, range);
      return *given;
    }
    const ConfigField* found = configured(field);
    if (!found) return fallback;
    if (found->text == "null") return off;
    if (found->number && range.holds(*found->number) && (found->is_integer || !range.integer))
      return static_cast<T>(*found->number);
    refuse(Status::error(
        Code::kInvalidArgument,
        found->where + " should be " + range.instead_of(found->number.value_or(0)) + ", is " + found->text));
    return fallback;
  }
  // The configuration's token ids, each of which may be outside the vocabulary; none where it says nothing, or null.
  std::vector<int64_t> ids(const char* field);
  // One token or more that will be chosen: all inside the vocabulary. A given -1 is none.
  std::vector<int64_t> forced(const char* name, const std::optional<int64_t>& given, const char* field);
};

}  // namespace situ
