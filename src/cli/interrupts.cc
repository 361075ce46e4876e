#include "cli/interrupts.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string_view>

#include "cli/common.h"

namespace situ::cli {
namespace {

struct Words {
  std::string out, err;
  const Words* before;  // what was to be said before them: a handler may still read that
};

// What the handler looks at. A lock in it might be held by what it interrupts.
std::atomic<bool> interrupted{false}, leaving{false}, second_one_leaves{false};
std::atomic<const Words*> last_words{nullptr};  // null: an interrupt is noted
const Words* newest = nullptr;
int pipe_ends[2] = {-1, -1};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<const Words*>::is_always_lock_free);

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void handle(int signal) {
  const int error = errno;
  if (signal == SIGTERM) _exit(kTerminated);
  if (const Words* words = last_words) {
    if (leaving.exchange(true)) _exit(kInterrupted);  // the other thread waits for a reader
    write_all(STDOUT_FILENO, words->out);
    write_all(STDERR_FILENO, words->err);
    _exit(kInterrupted);
  }
  if (interrupted.exchange(true) && second_one_leaves) _exit(kInterrupted);
  write_all(pipe_ends[1], "!");
  errno = error;
}

void install() {
  struct sigaction action{};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;  // nobody waits in a system call for the signal: see interrupt_descriptor()
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// -- SIGBUS. As above: no allocation, no library that may hold a lock.

// A line of standard error, written at once.
class ErrorLine {
 public:
  void add(char c) {
    if (size_ < sizeof(text_) - 1) text_[size_++] = c;
  }
  void add(const char* words) {
    while (*words != 0) add(*words++);
  }
  // Of a name that others chose: control characters become '?'.
  void add_name(const char* begin, const char* end) {
    for (; begin < end; ++begin) {
      const auto byte = static_cast<unsigned char>(*begin);
      add(byte < 0x20 || byte == 0x7f ? '?' : *begin);
    }
  }
  void write_out() {
    text_[size_++] = '\n';
    static_cast<void>(write(STDERR_FILENO, text_, size_));
  }

 private:
  char text_[4400];  // a path has at most 4,096 bytes
  size_t size_ = 0;
};

// Lines of /proc/self/maps: "begin-end flags offset device inode      path".
class Maps {
 public:
  Maps() : file_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)) {}
  ~Maps() {
    if (file_ >= 0) close(file_);
  }
  Maps(const Maps&) = delete;
  Maps& operator=(const Maps&) = delete;

  // The path of the map that holds the address, up to `end`; null: none, or it is no file's.
  const char* path_at(uintptr_t address, const char** end) {
    while (next_line()) {
      const char* p = line_;
      const uintptr_t first = hexadecimal(&p), last = *p == '-' ? hexadecimal(&++p) : 0;
      if (address < first || address >= last) continue;
      while (p < line_ + size_ && *p != '/') ++p;
      *end = line_ + size_;
      return p < *end ? p : nullptr;
    }
    return nullptr;
  }

 private:
  static uintptr_t hexadecimal(const char** p) {
    uintptr_t value = 0;
    for (;; ++*p) {
      const char c = **p;
      if (c >= '0' && c <= '9')
        value = value * 16 + static_cast<uintptr_t>(c - '0');
      else if (c >= 'a' && c <= 'f')
        value = value * 16 + static_cast<uintptr_t>(c - 'a' + 10);
      else
        return value;
    }
  }
  // Byte by byte from a buffer; what of a line does not fit is left out.
  bool next_line() {
    size_ = 0;
    for (;; ++at_) {
      if (at_ == filled_) {
        const ssize_t got = file_ < 0 ? 0 : read(file_, buffer_, sizeof buffer_);
        if (got <= 0) return false;
        at_ = 0;
        filled_ = static_cast<size_t>(got);
      }
      if (buffer_[at_] == '\n') break;
      if (size_ < sizeof(line_) - 1) line_[size_++] = buffer_[at_];
    }
    ++at_;
    line_[size_] = 0;
    return true;
  }

  int file_;
  char buffer_[4096], line_[4400];
  size_t at_ = 0, filled_ = 0, size_ = 0;
};

void handle_bus_error(int, siginfo_t* info, void*) {
  static std::atomic<bool> said{false};
  while (said.exchange(true)) pause();  // another thread does
  Maps maps;
  const char* end = nullptr;
  const char* path = maps.path_at(reinterpret_cast<uintptr_t>(info->si_addr), &end);
  ErrorLine line;
  line.add("situ: ");
  if (path)
    line.add_name(path, end);
  else
    line.add("memory");
  line.add(": cannot be read any more; a file that is in use must not be made shorter");
  line.write_out();
  _exit(kRefused);
}

}  // namespace

void leave_on_interrupt(std::string out, std::string err) {
  last_words = newest = new Words{std::move(out), std::move(err), newest};  // for good
  install();
}

const std::atomic<bool>* note_interrupts(bool second_leaves) {
  // Where there is no pipe left poll() does not see an interrupt, but whoever computes does.
  if (pipe_ends[0] < 0 && pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) != 0) pipe_ends[0] = pipe_ends[1] = -1;
  second_one_leaves = second_leaves;
  last_words = nullptr;
  install();
  return &interrupted;
}

bool is_interrupted() { return interrupted; }

bool take_interrupt() {
  char bytes[64];
  while (read(pipe_ends[0], bytes, sizeof bytes) > 0) continue;
  return interrupted.exchange(false);
}

int interrupt_descriptor() { return pipe_ends[0]; }

void leave_on_bus_error() {
  struct sigaction action{};
  action.sa_sigaction = handle_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace situ::cli
