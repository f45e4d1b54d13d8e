"""Super-resolution (Wang et al., *ESRGAN*, ECCVW 2018; *Real-ESRGAN*, ICCVW 2021)."""
