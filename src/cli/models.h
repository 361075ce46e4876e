// The model of a command: by its name, loaded, and of the kind that the command takes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "situ/load_options.h"
#include "situ/tools.h"

namespace situ::cli {

// --offline: of every command that takes a model.
void add_offline_option(CLI::App& command, const std::string& group);

// A name becomes the path of its files, which are fetched if they are not there, and the variants what its graphs need;
// so does the draft. A path, and what is neither, stay. Returns kDone, or an exit code behind an error that is printed.
// `command`: of the lines that say what else may be meant.
int find_model(LoadArguments& arguments, const char* command);

// Loads it. A terminal shows how far it is. Nothing: an error is printed, and *code is the exit code.
std::optional<Model> load_model(const LoadArguments& arguments, int* code);

// What a model is for.
enum class Use { kText, kEncoderDecoder, kSpeech, kEmbeddings, kPairs };
Use use_of(const Model& model);
// "a speech model: situ transcribe MODEL FILE"
std::string use_text(Use use, const std::string& model);
// Prints that the model is for something else, and what, where `uses` do not hold what it is for. Returns an exit code.
int check_use(const Model& model, const std::string& name, std::initializer_list<Use> uses);

// Prints why a name, as it was typed, has no model, and returns kFailed or kRefused.
int fail_pull(const Status& status, const std::string& typed, const char* command);

// Options that say on standard error what is fetched, and how far it is.
PullOptions shown_pull(bool ask);

}  // namespace situ::cli
