#include "cli/program.h"

int main(int argc, char** argv) { return situ::cli::run_program(argc, argv); }
