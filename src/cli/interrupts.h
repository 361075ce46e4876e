// Control-C: what SIGINT does now. Exit code kInterrupted in any case.
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

}  // namespace situ::cli
