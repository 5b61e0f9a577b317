/* screen.c: see screen.h. */
#include "screen.h"

#include <curses.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <term.h>
#include <unistd.h>
#include <wchar.h>

#undef columns /* term.h has names of capabilities as macros */

#include "keys.h"

static struct {
    SCREEN *screen;
    int attributes[LOOKS];
    int pairs[LOOKS];
} self;

static void choose_looks(bool colors)
{
    static const struct {
        int attributes, color; /* -1: the terminal's own */
    } looks[LOOKS] = {
        [LOOK_PLAIN] = {0, -1},
        [LOOK_DIM] = {A_DIM, -1},
        [LOOK_BOLD] = {A_BOLD, -1},
        [LOOK_HEAD] = {A_BOLD, COLOR_CYAN},
        [LOOK_SORTED] = {A_BOLD | A_UNDERLINE, COLOR_CYAN},
        [LOOK_SELECTED] = {A_REVERSE, -1},
        [LOOK_JOBS] = {0, COLOR_GREEN},
        [LOOK_OTHERS] = {0, COLOR_YELLOW},
        [LOOK_RESERVED] = {0, COLOR_BLUE},
        [LOOK_WARN] = {0, COLOR_YELLOW},
        [LOOK_BAD] = {A_BOLD, COLOR_RED},
        [LOOK_KEY] = {A_BOLD, COLOR_CYAN},
        [LOOK_PROMPT] = {A_BOLD, -1},
    };
    colors = colors && has_colors();
    if (colors) {
        start_color();
        use_default_colors();
    }
    for (int i = 0; i < LOOKS; i++) {
        self.attributes[i] = looks[i].attributes;
        self.pairs[i] = 0;
        if (colors && looks[i].color >= 0 &&
            init_pair((short)(i + 1), (short)looks[i].color, -1) == OK)
            self.pairs[i] = i + 1;
    }
}

bool screen_open(bool colors)
{
    const char *name = getenv("TERM");
    int error;
    /* newterm would end the program for some terminals that it does not know. */
    if (!name || !name[0] || setupterm(name, STDOUT_FILENO, &error) != OK)
        return false;
    const char *move = tigetstr("cup");
    if (!move || move == (char *)-1)
        return false;
    self.screen = newterm(name, stdout, stdin);
    if (!self.screen)
        return false;
    set_term(self.screen);
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    nodelay(stdscr, TRUE);
    set_escdelay(50);
    curs_set(0);
    choose_looks(colors);
    return true;
}

void screen_close(void)
{
    if (!self.screen)
        return;
    endwin();
    delscreen(self.screen);
    self.screen = NULL;
}

void screen_leave(void)
{
    def_prog_mode();
    endwin();
}

void screen_return(void)
{
    reset_prog_mode();
    screen_resize();
    screen_spoil();
}

void screen_resize(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
        resizeterm(size.ws_row, size.ws_col);
}

void screen_size(int *width, int *height)
{
    *width = COLS;
    *height = LINES;
}

void screen_spoil(void)
{
    clearok(curscr, TRUE);
}

/* Cells of one look go out together. */
static void draw_run(const struct grid *grid, int y, int from, int to)
{
    const struct cell *row = &grid->cells[(size_t)y * (size_t)grid->width];
    wchar_t text[512];
    int length = 0;
    attr_set((attr_t)self.attributes[row[from].look], (short)self.pairs[row[from].look], NULL);
    move(y, from);
    for (int x = from; x < to; x++) {
        if (row[x].columns == 0)
            continue;
        text[length++] = (wchar_t)row[x].text;
        if (length == 511 || x == to - 1 || (x == to - 2 && row[x].columns == 2)) {
            addnwstr(text, length);
            length = 0;
        }
    }
}

void screen_draw(const struct grid *grid)
{
    erase();
    for (int y = 0; y < grid->height && y < LINES; y++) {
        const struct cell *row = &grid->cells[(size_t)y * (size_t)grid->width];
        int width = grid->width < COLS ? grid->width : COLS;
        for (int x = 0, from = 0; x < width; x++) {
            if (x + 1 < width && row[x + 1].look == row[from].look)
                continue;
            draw_run(grid, y, from, x + 1);
            from = x + 1;
        }
    }
    refresh();
}

int screen_key(void)
{
    static const struct {
        wint_t code;
        int key;
    } special[] = {{KEY_UP, KEYS_UP},         {KEY_DOWN, KEYS_DOWN},
                   {KEY_LEFT, KEYS_LEFT},     {KEY_RIGHT, KEYS_RIGHT},
                   {KEY_PPAGE, KEYS_PAGE_UP}, {KEY_NPAGE, KEYS_PAGE_DOWN},
                   {KEY_HOME, KEYS_HOME},     {KEY_END, KEYS_END},
                   {KEY_ENTER, KEYS_ENTER},   {KEY_BACKSPACE, KEYS_BACKSPACE},
                   {KEY_DC, KEYS_BACKSPACE},  {KEY_F(1), '?'},
                   {KEY_F(4), '/'},           {KEY_F(5), 't'},
                   {KEY_F(6), '>'},           {KEY_F(9), 'k'},
                   {KEY_F(10), 'q'}};
    wint_t c;
    errno = 0;
    int result = get_wch(&c);
    if (result == ERR)
        return errno == EIO ? -2 : -1;
    if (result == KEY_CODE_YES) {
        for (size_t i = 0; i < sizeof special / sizeof *special; i++)
            if (special[i].code == c)
                return special[i].key;
        return KEYS_FIRST;
    }
    switch (c) {
    case '\r':
    case '\n':
        return KEYS_ENTER;
    case 0x1b:
        return KEYS_ESCAPE;
    case '\t':
        return KEYS_TAB;
    case 0x08:
    case 0x7f:
        return KEYS_BACKSPACE;
    case 0x15:
        return KEYS_CLEAR;
    default:
        return (int)c;
    }
}
