// Transcriptions for Python: SpeechModel and SpeechStream over a model that others use too.
#pragma once

#include <nanobind/nanobind.h>

namespace situ::python {

void bind_speech(nanobind::module_& m);

}  // namespace situ::python
