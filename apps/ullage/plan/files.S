/* files.S: the profiles in devices/ and the page in page/, as they are, in the program. */
    .section .rodata
    .globl plan_device_files
    .hidden plan_device_files
plan_device_files:
    .incbin "devices/h200.json"
    .byte 0
    .incbin "devices/a100-80g.json"
    .byte 0
    .incbin "devices/rtx4090.json"
    .byte 0
    .incbin "devices/v100-16g.json"
    .byte 0
    .incbin "devices/t4.json"
    .byte 0
    .incbin "devices/jetson-agx.json"
    .byte 0
    .incbin "devices/cpu.json"
    .byte 0
    .byte 0

    .globl plan_page_head
    .hidden plan_page_head
plan_page_head:
    .incbin "page/plan.html"
    .byte 0

    .globl plan_page_script
    .hidden plan_page_script
plan_page_script:
    .incbin "page/plan.js"
    .byte 0

    .section .note.GNU-stack, "", %progbits
