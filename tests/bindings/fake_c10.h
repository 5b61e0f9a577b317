/*
 * fake_c10.h: as much of PyTorch's c10/util/Exception.h as a catch of its exceptions needs, so that a test
 * can see whether what libullage-torch.so throws is one of them. Not a copy: names, bases and the order
 * of virtual functions are the interface, the members are not PyTorch's on purpose.
 */
#ifndef FAKE_C10_H
#define FAKE_C10_H

#include <cstdint>
#include <exception>
#include <string>

#pragma GCC visibility push(default)
namespace c10
{

struct SourceLocation {
    const char *function;
    const char *file;
    uint32_t line;
};

class Error : public std::exception
{
  public:
    Error(SourceLocation where, std::string text);
    const char *what() const noexcept override;
    virtual const char *what_without_backtrace() const noexcept
    {
        return text_.c_str();
    }
    std::string where;

  private:
    char gap_[40] = {};
    std::string text_, whole_;
};

class OutOfMemoryError : public Error
{
    using Error::Error;
};

} // namespace c10

/* Something in the library that throws it, as libc10_cuda has, so that its type is in there. */
void fake_c10_throw();
#pragma GCC visibility pop

#endif
