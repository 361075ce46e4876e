// Options and positional arguments that may be given several times. CLI11 takes a value in brackets apart, "[a,b]" for
// a and b, where an option admits more arguments than it expects: texts and names of files are values as they are.
#pragma once

#include <CLI/CLI.hpp>

namespace situ::cli {

// One value each time; `type`: what the help calls it.
inline CLI::Option* repeated(CLI::Option* option, const char* type) {
  return option->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->type_name(type);
}

// Any number of positional arguments: one takes what it still expects.
inline CLI::Option* many(CLI::Option* positional) {
  constexpr int kMost = 1 << 24;
  return positional->expected(kMost)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->option_text("...");
}

}  // namespace situ::cli
