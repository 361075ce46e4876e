// Signals. Control-C: what SIGINT does now; exit code kInterrupted in any case. SIGTERM ends the program at once with
// kTerminated. And SIGBUS.
#pragma once

#include <atomic>
#include <string>

namespace situ::cli {

// SIGINT writes `out` to standard output and `err` to standard error and ends the program at once, whatever it
// computes: the handler does it.
void leave_on_interrupt(std::string out = "", std::string err = "situ: interrupted\n");

// SIGINT sets the flag that is returned. The next one, with the flag still set, ends the program where `second_leaves`.
const std::atomic<bool>* note_interrupts(bool second_leaves);

// The rest: after note_interrupts().
bool is_interrupted();
// Clears the flag, and returns whether it was set.
bool take_interrupt();
// Readable from an interrupt until it is taken, also one that comes between a look at the flag and poll().
int interrupt_descriptor();

// Models and packed weights are mapped files. What of one cannot be read any more, because somebody made it shorter or
// its disk failed, is a SIGBUS in the middle of a kernel: from here on it ends the program with one line on standard
// error that names the file, and exit code kRefused.
void leave_on_bus_error();

}  // namespace situ::cli
