/*
 * page.S: the files of page/ as they are, in the program. Paths are found along the include path; what depends on
 * what is in CMakeLists.txt.
 */
    .section .rodata

    .globl html_page
    .hidden html_page
html_page:
    .incbin "page/page.html"
    .byte 0

    .globl html_style
    .hidden html_style
html_style:
    .incbin "page/page.css"
    .byte 0

    .globl html_script
    .hidden html_script
html_script:
    .incbin "page/model.js"
    .incbin "page/draw.js"
    .incbin "page/timeline.js"
    .incbin "page/contents.js"
    .incbin "page/flame.js"
    .incbin "page/sizes.js"
    .incbin "page/page.js"
    .byte 0

    .section .note.GNU-stack, "", %progbits
