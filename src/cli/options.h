// How options are added. CLI11 parses them; help.h shows them; what it says of a value stands here.
#pragma once

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace situ::cli {

// The group of an option that only --help-all shows.
inline std::string more(const std::string& group) { return "+" + group; }

// An integer of these bounds. The message names the value and, if it is one, the bounds.
CLI::Validator whole(int64_t least, int64_t most);
// Any integer, and any number: who reads the value says which are right (check_options()).
CLI::Validator integer();
CLI::Validator number();
// A number of these bounds; not NaN.
CLI::Validator real(double least, double most);
inline constexpr double kAnyNumber = std::numeric_limits<double>::infinity();
// "2GiB" becomes bytes.
CLI::Validator size();

// One of the names, which are shown as a|b|c.
template <typename T>
CLI::Option* choice(CLI::App& command, const std::string& name, std::vector<std::pair<std::string, T>> names,
                    const std::function<void(const T&)>& set, const std::string& help) {
  std::string all;
  for (const auto& [word, value] : names) all += (all.empty() ? "" : "|") + word;
  return command
      .add_option_function<std::string>(
          name,
          [names, set, name, all](const std::string& text) {
            for (const auto& [word, value] : names)
              if (word == text) return set(value);
            throw CLI::ValidationError(name, "'" + text + "' is none of " + all);
          },
          help)
      ->type_name(all);
}

// Options and positional arguments that may be given several times. CLI11 takes a value in brackets apart, "[a,b]" for
// a and b, where an option admits more arguments than it expects: texts and names of files are values as they are.
// One value each time; `type`: what help calls it.
inline CLI::Option* repeated(CLI::Option* option, const char* type) {
  return option->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->type_name(type);
}

// Any number of positional arguments: one takes what it still expects.
inline constexpr int kMany = 1 << 24;
inline CLI::Option* many(CLI::Option* positional) {
  return positional->expected(kMany)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->allow_extra_args(false);
}

}  // namespace situ::cli
