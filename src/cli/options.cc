#include "cli/options.h"

#include <charconv>
#include <cstdio>

#include "cli/common.h"

namespace situ::cli {
namespace {

std::string shortest(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

}  // namespace

CLI::Validator whole(int64_t least, int64_t most) {
  return CLI::Validator(
      [least, most](std::string& text) {
        int64_t number = 0;
        const char* const end = text.data() + text.size();
        const auto [stopped, error] = std::from_chars(text.data(), end, number);
        if (stopped != end || error == std::errc::invalid_argument) return "'" + text + "' is not an integer";
        if (error == std::errc() && number >= least && number <= most) return std::string();
        const std::string bound = most == std::numeric_limits<int64_t>::max() ? "" : " to " + std::to_string(most);
        return text + " is not in the range " + std::to_string(least) + (bound.empty() ? " or more" : bound);
      },
      "");
}

CLI::Validator integer() { return whole(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()); }

CLI::Validator number() {
  return CLI::Validator(
      [](std::string& text) {
        double value = 0;
        return CLI::detail::lexical_cast(text, value) ? std::string() : "'" + text + "' is not a number";
      },
      "");
}

CLI::Validator real(double least, double most) {
  return CLI::Validator(
      [least, most](std::string& text) {
        double number = 0;
        if (!CLI::detail::lexical_cast(text, number) || std::isnan(number)) return "'" + text + "' is not a number";
        if (number >= least && number <= most) return std::string();
        if (most == kAnyNumber) return text + " is less than " + shortest(least);
        return text + " is not in the range " + shortest(least) + " to " + shortest(most);
      },
      "");
}

CLI::Validator size() {
  return CLI::Validator(
      [](std::string& text) {
        const Result<int64_t> bytes = parse_size(text);
        if (!bytes.is_ok()) return bytes.status().message();
        text = std::to_string(*bytes);
        return std::string();
      },
      "");
}

}  // namespace situ::cli
