#include "cli/interrupts.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
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

void handle(int) {
  const int error = errno;
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

}  // namespace situ::cli
