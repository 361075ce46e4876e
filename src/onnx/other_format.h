// What a file is that is no ONNX model: for the error that says so.
#pragma once

#include <string>
#include <string_view>

namespace situ::onnx {

// "a text file (JSON)", "a GGUF file", .. by how the file begins; "": nothing is told. A model may begin like a text,
// so this is asked only of what could not be read as one.
std::string other_format(std::string_view bytes);

}  // namespace situ::onnx
