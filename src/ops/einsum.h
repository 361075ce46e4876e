// Einsum's equation: letters of the axes of every operand, and of the result.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace situ {

struct EinsumTerms {
  std::vector<std::string> operands;  // a letter for each axis; those of "..." are digits
  std::string result;
};
// `ranks`: of the operands. Errors: an equation that cannot be read, or has another number of operands or axes; a
// letter that an operand has twice (a diagonal), or that the result has and no operand.
Result<EinsumTerms> einsum_terms(const std::string& equation, const std::vector<size_t>& ranks);

}  // namespace situ
