/* out_of_memory.cpp: PyTorch's exception if there is one, else our own. */
#include "out_of_memory.h"

namespace ullage
{

bool knows_c10()
{
    return cxx11::knows() || cxx98::knows();
}

void throw_out_of_memory(const std::string &text)
{
    cxx11::throw_c10(text.c_str());
    cxx98::throw_c10(text.c_str());
    throw OutOfMemory(text);
}

} // namespace ullage
