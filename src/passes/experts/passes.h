// Passes over mixtures of experts.
#pragma once

#include "passes/context/pass_context.h"

namespace situ {

Status ungroup_products(PassContext&);   // rows sorted by expert: products with the matrix of each row
Status recognise_experts(PassContext&);  // loops over experts: NonZero of a router's choice
Status unsort_rows(PassContext&);        // rows that are sorted by expert, and put back
Status choose_experts(PassContext&);     // experts that compute every row: those that were chosen

}  // namespace situ
