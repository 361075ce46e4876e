// Prompts as Python gives them: texts, messages, images, sounds, ids and arrays.
#pragma once

#include <nanobind/nanobind.h>

#include "python/model_handle.h"

namespace situ::python {

// The messages of a dict {"messages", "tools", "variables", "add_generation_prompt", "continue_last"}, all of texts.
std::pair<std::vector<Message>, ChatOptions> conversation_of(const nanobind::dict& given);

// Model.read, and the class of what it gives.
void bind_prompt(nanobind::class_<ModelHandle>& model, nanobind::module_& m);

}  // namespace situ::python
