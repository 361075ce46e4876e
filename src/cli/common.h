// What the subcommands share: exit codes, errors as one line, files, sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "situ/status.h"

namespace situ::cli {

// The only ones. Nothing ends by a signal but what SIGKILL and its like end. kFailed: something outside of what was
// given, such as the network or a disk; kRefused: arguments, files, models.
enum ExitCode : int { kDone = 0, kFailed = 1, kRefused = 2, kInterrupted = 130 };

// Prints "situ: message" to stderr, as one line, and returns `code`.
int fail(const std::string& message, int code = kRefused);

// False: nobody reads the output, or the disk is full.
bool flush_output();
inline constexpr const char* kNoOutput = "standard output cannot be written";

// Names standard input or output in place of a file.
inline constexpr const char* kStandard = "-";

// The whole file without a byte order mark, or (or_input) standard input by the name "-". Error: it cannot be read; it
// is UTF-16, say, or compressed, and the message says so.
Result<std::string> read_file(const std::string& path, bool or_input = false);

// "45.0 KiB"
std::string size_text(double bytes);
// Writes a file whole or not at all, by PATH.part; what is no plain file (a pipe, a device, a link) directly. Error: it
// cannot be written (names it and why).
Status write_file(const std::string& path, const std::string& text);

// Bytes of a --memory, or another option, such as "2GiB", "512MiB", "1000000"; 0 without one. Error: it is no size.
Result<int64_t> parse_memory(const std::optional<std::string>& text, const std::string& option = "--memory");

}  // namespace situ::cli
