// The program `situ`, for main() and for the Python module.
#pragma once

namespace situ::cli {

// Sets the signals of the process, runs the command that the arguments name, and returns the exit code. Once a process.
int run_program(int argc, char** argv);

}  // namespace situ::cli
