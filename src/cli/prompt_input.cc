#include "cli/prompt_input.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "cli/common.h"
#include "situ/tokenizer.h"

namespace situ::cli {
namespace {

bool input_may_be_read() {
  struct stat input{};
  return fstat(STDIN_FILENO, &input) == 0 && (S_ISFIFO(input.st_mode) || S_ISREG(input.st_mode));
}

Result<std::string> read_input() {
  constexpr int kPatience = 1000;  // ms
  pollfd waited{STDIN_FILENO, POLLIN, 0};
  if (poll(&waited, 1, kPatience) == 0)
    std::fprintf(stderr, "situ: waiting for standard input, which is a part of the prompt; '< /dev/null' is none\n");
  return read_file(kStandard, true);
}

Status add(Result<std::string> text, const std::string& name, bool as_it_is, std::optional<std::string>* message) {
  if (!text.is_ok()) return text.status();
  SITU_RETURN_IF_ERROR(check_utf8(*text, name));
  if (!as_it_is && text->ends_with('\n')) text->pop_back();
  if (!as_it_is && text->ends_with('\r')) text->pop_back();
  if (text->empty()) return Status::ok();
  *message = message->has_value() && !(*message)->empty() ? **message + "\n\n" + *text : *text;
  return Status::ok();
}

}  // namespace

Result<std::optional<std::string>> read_message(const MessageSources& sources) {
  std::optional<std::string> message;
  if (sources.words) {
    SITU_RETURN_IF_ERROR(check_utf8(*sources.words, "PROMPT"));
    message = *sources.words;
  }
  const bool by_name = sources.file == kStandard;
  if (sources.file && !by_name)
    SITU_RETURN_IF_ERROR(add(read_file(*sources.file), *sources.file, sources.as_it_is, &message));
  if (by_name || input_may_be_read())
    SITU_RETURN_IF_ERROR(add(read_input(), "standard input", sources.as_it_is, &message));
  if (!message && sources.file)
    return Status::error(Code::kInvalidArgument, (by_name ? "standard input" : *sources.file) + ": is empty");
  return message;
}

}  // namespace situ::cli
