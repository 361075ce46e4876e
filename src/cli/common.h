// What the subcommands share: exit codes, errors as one line, files, sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "situ/status.h"

namespace situ::cli {

// What the program ends with. SIGKILL and its like alone end it otherwise.
enum ExitCode : int { kDone = 0, kFailed = 1, kRefused = 2, kInterrupted = 130, kReaderLeft = 141, kTerminated = 143 };
struct ExitMeaning {
  ExitCode code;
  const char* meaning;
};
std::span<const ExitMeaning> exit_codes();

// Prints "situ: message" to stderr, as one line, and returns `code`.
int fail(const std::string& message, int code = kRefused);
// The same of a call that reads a model or computes. kFailed: the machine has no memory, and no limit was given.
int fail_load(const Status& status, bool limited);

// False: the output cannot be written.
bool flush_output();
inline constexpr const char* kNoOutput = "standard output cannot be written";
// Behind a false flush_output(): says so and returns kFailed; without a word kReaderLeft where the reader has gone.
int fail_output();

// Names standard input or output in place of a file.
inline constexpr const char* kStandard = "-";

// The whole file without a byte order mark, or (or_input) standard input by the name "-". Error: it cannot be read; it
// is UTF-16, say, or compressed, and the message says so.
Result<std::string> read_file(const std::string& path, bool or_input = false);

// "45.0 KiB"
std::string size_text(double bytes);
// Error: that of write_file(), as far as the file and its folder tell before anything is written.
Status check_writable(const std::string& path);
// Writes a file whole or not at all, by PATH.part; what is no plain file (a pipe, a device, a link) directly. Error: it
// cannot be written (names it and why).
Status write_file(const std::string& path, const std::string& text);

// Bytes of "2GiB", "512MiB", "1000000". Error: it is no size.
Result<int64_t> parse_size(const std::string& text);

}  // namespace situ::cli
