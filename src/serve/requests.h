// From what a call asks for to requests of the scheduler, and from what the scheduler refuses to refusals.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/ask.h"
#include "serve/refusal.h"

namespace situ::serve {

// The prompts of `ask` as its model reads them, one request for each, and ask.dialog. All of them are to be submitted;
// `interactive`, `client`, `salt` and `deadline` are left to who submits. Sets ask.prompts, and the seed where there is
// none: all prompts are drawn with one, which the answer says.
OrRefusal<std::vector<Request>> requests_of(Ask& ask);
// The text that the conversation of `ask` becomes, images and sounds by their placeholders.
OrRefusal<std::string> text_of(Ask& ask);

// Of what Model::submit refuses, or of an answer that failed: its error, or the end kError. Messages have no paths.
Refusal refusal_of(const Ask& ask, const Status& status);
std::optional<Refusal> refusal_of(const Ask& ask, const Result<Generation>& result);
// Of a list of more prompts than `most`, which may run and wait where `where` says.
std::optional<Refusal> too_many_prompts(const Ask& ask, int64_t most, const std::string& where);

// Of what computes an answer: the version, the instruction set, and the size of the model's file.
std::string fingerprint_of(const Model& model);

std::string without_paths(const Model& model, std::string message);

}  // namespace situ::serve
