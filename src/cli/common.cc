#include "cli/common.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <system_error>

#include "base/text_encoding.h"
#include "cli/terminal.h"

namespace situ::cli {

int fail(const std::string& message, int code) {
  constexpr size_t kMostBytes = 64 << 10;  // all reasons of a refusal; a file may have a name of megabytes
  std::fprintf(stderr, "situ: %s\n", one_line(message, kMostBytes).c_str());
  return code;
}

std::span<const ExitMeaning> exit_codes() {
  static constexpr ExitMeaning kCodes[] = {
      {kDone, "done"},
      {kFailed, "something outside the input failed: network, disk, output, memory of the machine, port, drain cut"},
      {kRefused, "arguments, files, models, prompts or given limits are wrong; or an answer broke off in an error"},
      {kInterrupted, "Control-C (SIGINT)"},
      {kReaderLeft, "the reader of the output has gone (SIGPIPE); nothing is printed"},
      {kTerminated, "SIGTERM; situ serve ends with 0 once all is answered"},
  };
  return kCodes;
}

int fail_load(const Status& status, bool limited) {
  // Or the model is too large for any machine.
  const Reasons& reasons = status.reasons();
  const bool of_model = std::any_of(reasons.begin(), reasons.end(), [](const Reason& r) {
    return r.kind == Reason::Kind::kSize || r.kind == Reason::Kind::kState;
  });
  const bool of_machine = status.code() == Code::kNoRoom && !limited && !of_model;
  return fail(status.message(), of_machine ? kFailed : kRefused);
}

int fail_output() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  if (poll(&output, 1, 0) > 0 && (output.revents & (POLLERR | POLLHUP)) != 0) return kReaderLeft;
  return fail(kNoOutput, kFailed);
}

bool flush_output() { return std::fflush(stdout) == 0 && std::ferror(stdout) == 0; }

Result<std::string> read_file(const std::string& path, bool or_input) {
  std::error_code unreadable;
  if (std::filesystem::is_directory(path, unreadable))
    return Status::error((path.empty() ? "''" : path) + ": cannot be read: it is a folder");
  constexpr size_t kMostBytes = size_t{64} << 20;  // a schema or a conversation is kilobytes; /dev/zero has no end
  std::ifstream opened;
  const bool from_input = or_input && path == kStandard;
  if (!from_input) opened.open(path, std::ios::binary);
  std::istream& file = from_input ? std::cin : opened;
  const std::string name = path.empty() ? "''" : from_input ? "standard input" : path;
  std::string text;
  for (char piece[4096]; file && text.size() <= kMostBytes;) {
    file.read(piece, sizeof piece);
    text.append(piece, static_cast<size_t>(file.gcount()));
  }
  if (text.size() > kMostBytes)
    return Status::error(name + ": cannot be read: it has more than " + std::to_string(kMostBytes) + " bytes");
  if (!file.eof()) return Status::error(name + ": cannot be read");
  SITU_RETURN_IF_ERROR(to_plain_utf8(name, &text));
  return text;
}

std::string size_text(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int u = 0;
  while (bytes >= 1024 && u < 4) {
    bytes /= 1024;
    ++u;
  }
  char text[32];
  std::snprintf(text, sizeof(text), u == 0 ? "%.0f %s" : "%.1f %s", bytes, units[u]);
  return text;
}

namespace {

Status write_plainly(const std::string& to, const std::string& text, const std::string& shown) {
  std::FILE* file = std::fopen(to.c_str(), "wb");
  bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  int why = errno;
  if (file && std::fclose(file) != 0 && written) {
    written = false;
    why = errno;
  }
  if (written) return Status::ok();
  return Status::error(shown + ": cannot be written: " + std::generic_category().message(why));
}

}  // namespace

Status write_file(const std::string& path, const std::string& text) {
  const std::string shown = path.empty() ? "''" : path;
  std::error_code unknown;
  const std::filesystem::file_type type = std::filesystem::symlink_status(path, unknown).type();
  if (path.empty() || (type != std::filesystem::file_type::regular && type != std::filesystem::file_type::not_found))
    return write_plainly(path, text, shown);  // a pipe, a device, a link
  const std::string part = path + ".part";
  Status written = write_plainly(part, text, shown);
  std::error_code error;
  if (written.is_ok()) {
    std::filesystem::rename(part, path, error);
    if (!error) return written;
    written = Status::error(shown + ": cannot be written: " + error.message());
  }
  std::filesystem::remove(part, unknown);
  return written;
}

Status check_writable(const std::string& path) {
  std::error_code unknown;
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const bool folder = parent.empty() || std::filesystem::is_directory(parent, unknown);
  const int why = path.empty() || !folder                        ? ENOENT
                  : std::filesystem::is_directory(path, unknown) ? EISDIR
                  : std::filesystem::exists(path, unknown)       ? (access(path.c_str(), W_OK) == 0 ? 0 : errno)
                  : access(parent.empty() ? "." : parent.c_str(), W_OK) == 0 ? 0
                                                                             : errno;
  if (why == 0) return Status::ok();
  return Status::error((path.empty() ? "''" : path) + ": cannot be written: " + std::generic_category().message(why));
}

Result<int64_t> parse_size(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const std::map<std::string, double> units{
      {"", 1},     {"B", 1},    {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
      {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}};
  auto unit = units.find(end ? end : "");
  if (end == text.c_str() || unit == units.end() || !(value * unit->second >= 1) || value * unit->second > 1e18)
    return Status::error("'" + text + "' is not a size such as 2GiB");
  return static_cast<int64_t>(value * unit->second);
}

}  // namespace situ::cli
