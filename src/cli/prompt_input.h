// The message of `situ run`: its argument, a file and standard input.
#pragma once

#include <optional>
#include <string>

#include "situ/status.h"

namespace situ::cli {

struct MessageSources {
  std::optional<std::string> words;  // the argument
  std::optional<std::string> file;   // "-": standard input
  bool as_it_is = false;             // else the last line's end of the file, and of standard input, is left out
};

// What there is of the three, with an empty line between them; nothing: none. Standard input is read where it is a pipe
// or a plain file; where nothing comes within a second standard error says that it is waited for. Errors: a file that
// cannot be read, or is no UTF-8.
Result<std::optional<std::string>> read_message(const MessageSources& sources);

}  // namespace situ::cli
